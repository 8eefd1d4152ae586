import { CLAIM_RECORD } from './claim.lua.js';

/**
 * Gives back what was granted. Has no deadline: a late one is wanted, and the token makes it harmless.
 *
 * KEYS    one per step
 * ARGV    one per step
 *           r<token>                                              release a lease
 *           u<token>                                              drop a claim
 *           b<token>:<record>                                     undo a claim: the record that it took over
 *           k<ttlMs>:<run>:<d|t>:<token>:<fingerprint>:<outcome>   complete a claim: done or tombstone
 * answer  { now (store time, us), one number per step }
 *           1 done as asked, 0 there was nothing (a claim is completed all the same),
 *           2 it is somebody else's or finished: nothing was changed
 *           or the text of an error: Redis has no room for it; the other steps ran all the same
 */
export const LEAVE = `
local clock = redis.call('TIME')
${CLAIM_RECORD}
local function release(key, token)
  if redis.pcall('GET', key) ~= token then return 0 end
  redis.call('DEL', key)
  return 1
end

local function unclaim(key, token)
  local found, problem = claim_under(key)
  if not found then return problem and 2 or 0 end
  if found.token ~= token or found.state ~= 'p' then return 2 end
  redis.call('DEL', key)
  return 1
end

local function put_back(key, rest)
  local token, record = string.match(rest, '^([^:]*):(.*)$')
  local found, problem = claim_under(key)
  if not found then return problem and 2 or 0 end
  if found.token ~= token or found.state ~= 'p' then return 2 end
  local saved = redis.pcall('SET', key, record, 'PX', math.max(1, redis.call('PTTL', key)))
  return saved.err or 1
end

local function complete(key, rest)
  local ttl, run, state, token, fingerprint, outcome =
    string.match(rest, '^(%d+):(%d+):(%a):([^:]*):([^:]*):(.*)$')
  local found, problem = claim_under(key)
  if problem or found and found.token ~= token then return 2 end
  if found and found.state ~= 'p' then return 1 end
  local saved = redis.pcall('SET', key,
    state .. ':' .. run .. ':0:' .. token .. ':' .. fingerprint .. ':' .. outcome, 'PX', ttl)
  return saved.err or (found and 1 or 0)
end

local kinds = { r = release, u = unclaim, b = put_back, k = complete }
local answer = { clock[1] * 1000000 + clock[2] }
for i, key in ipairs(KEYS) do
  answer[#answer + 1] = kinds[string.sub(ARGV[i], 1, 1)](key, string.sub(ARGV[i], 2))
end
return answer
`;
