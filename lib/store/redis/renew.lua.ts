import { CLAIM_RECORD } from './claim.lua.js';
import { STORE_TIME } from './store-time.lua.js';

/**
 * Starts the leases of claims anew.
 *
 * KEYS    one per claim
 * ARGV    one per claim: <ttlMs>:<leaseMs>:<token>; then the deadline (store time, ms)
 * answer  { now } when late, else { now, ours 0|1 per claim }
 */
export const RENEW = `${STORE_TIME}${CLAIM_RECORD}
if is_late(ARGV[#KEYS + 1]) then return { now } end
local at = math.floor(now / 1000)
local answer = { now }
for i, key in ipairs(KEYS) do
  local ttl, lease_ms, token = string.match(ARGV[i], '^(%d+):(%d+):([^:]*)$')
  local found = claim_under(key)
  local ours = found and found.state == 'p' and found.token == token
  if ours then
    redis.call('SET', key,
      'p:' .. found.run .. ':' .. whole(at + lease_ms) .. ':' .. token .. ':' .. found.fingerprint .. ':',
      'PX', whole(ttl + lease_ms))
  end
  answer[#answer + 1] = ours and 1 or 0
end
return answer
`;
