/**
 * Gives leases back. Has no deadline: a late release is wanted, and the token makes it harmless.
 *
 * KEYS    one per release
 * ARGV    the token of each
 * answer  { now (store time, us), released 0|1 per key }
 */
export const LEAVE = `
local clock = redis.call('TIME')
local answer = { clock[1] * 1000000 + clock[2] }
for i, key in ipairs(KEYS) do
  local ours = redis.pcall('GET', key) == ARGV[i]
  if ours then redis.call('DEL', key) end
  answer[#answer + 1] = ours and 1 or 0
end
return answer
`;
