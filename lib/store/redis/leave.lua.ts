import { CIRCUIT_RECORD } from './circuit.lua.js';
import { CLAIM_RECORD } from './claim.lua.js';

/**
 * Gives back what was granted. Has no deadline: a late one is wanted, and the token makes it harmless.
 *
 * KEYS    one per step
 * ARGV    one per step, then optionally 'again': it may have been executed before, so that calls
 *         which no permit tells apart are not counted
 *           r<token>                                              release a lease
 *           u<token>                                              drop a claim
 *           b<token>:<record>                                     undo a claim: the record that it took over
 *           k<ttlMs>:<run>:<d|t>:<token>:<fingerprint>:<outcome>   complete a claim: done or tombstone
 *           p<ttlMs>:<token>                                      give a probe's permit back
 *           o<ttlMs>:<epoch>:<s|f>:<failureRate>:<minimumCalls>:<windowMs>:<permits>:<openMs>:
 *            <maxOpenMs>:<jitter>:<token>                          how a call ended: success or failure
 * answer  { now (store time, us), one number per step; of an outcome, a text }
 *           1 done as asked, 0 there was nothing (a claim is completed all the same),
 *           2 it is somebody else's or finished: nothing was changed
 *           of an outcome: '=stale', '=counted', '=closed:<epoch>',
 *           '=opened:<epoch>:<rate>:<open ms>'
 *           or the text of an error: Redis has no room for it; the other steps ran all the same
 */
export const LEAVE = `
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local again = ARGV[#KEYS + 1] == 'again'
${CLAIM_RECORD}${CIRCUIT_RECORD}
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

local function unpermit(key, rest)
  local ttl, token = string.match(rest, '^(%d+):(.*)$')
  local at, record = math.floor(now / 1000), circuit_under(key)
  if not record or record.state ~= 'h' or not take_permit(record, token, at) then return 0 end
  local remaining = redis.call('PTTL', key)
  return keep_circuit(key, record, remaining == -1 and ttl or math.max(1, remaining), at) or 1
end

-- Twice as long each time that a probe fails; of a repeated one half is random (equal jitter).
local function open_circuit(key, record, ttl, at, rate, open_ms, max_open_ms, jitter)
  local ms = open_ms
  if record.opens > 0 then
    local longest = math.min(open_ms * 2 ^ math.min(record.opens, 32), math.max(max_open_ms, open_ms))
    ms = math.max(1, math.floor(longest / 2 + (longest / 2) * jitter))
  end
  move_circuit(record, 'o', at)
  record.opens = record.opens + 1
  record.open_until = at + ms
  return keep_circuit(key, record, ttl, at) or '=opened:' .. whole(record.epoch) .. ':' .. string.format('%.17g', rate) .. ':' .. whole(ms)
end

-- The usual case: a success in the bucket of now, which is the newest and so the last, changes one
-- number of the text, and nothing else is read.
local function count_success(key, text, epoch, slot, ttl)
  local before, calls, after =
    string.match(text, '^(c:' .. epoch .. ':.*[|;]' .. whole(slot) .. ',)(%d+)(,%d+;|)$')
  if not before then return nil end
  local saved = redis.pcall('SET', key, before .. whole(calls + 1) .. after, 'PX', ttl)
  return saved.err or '=counted'
end

local function outcome(key, rest)
  local ttl, epoch, sample, failure_rate, minimum, window, permits, open_ms, max_open_ms, jitter, token =
    string.match(rest, '^(%d+):(%d+):(%a):([^:]+):(%d+):(%d+):(%d+):(%d+):(%d+):([^:]+):(.*)$')
  -- One that has never opened is nothing but the calls of its window.
  local closed_ttl = epoch == '0' and tonumber(window) < tonumber(ttl) and window or ttl
  local at, text = math.floor(now / 1000), redis.pcall('GET', key)
  local slot = math.floor(at / math.max(1, math.floor(window / BUCKETS)))
  local counted = type(text) == 'string' and sample == 's' and not again
    and count_success(key, text, epoch, slot, closed_ttl)
  if counted then return counted end
  local record, problem = circuit_of(text)
  if problem then return '=stale' end
  if not record then
    record = { state = 'c', epoch = 0, open_until = 0, opens = 0, successes = 0, buckets = {}, permits = {} }
  end
  if record.epoch ~= tonumber(epoch) then return '=stale' end
  local function open(rate)
    return open_circuit(key, record, ttl, at, rate, tonumber(open_ms), tonumber(max_open_ms), tonumber(jitter))
  end
  if record.state == 'h' then
    if not take_permit(record, token, at) then return '=stale' end
    if sample == 'f' then return open(1) end
    record.successes = record.successes + 1
    local told = '=counted'
    if record.successes >= tonumber(permits) then
      move_circuit(record, 'c', at)
      record.opens = 0
      told = '=closed:' .. whole(record.epoch)
    end
    return keep_circuit(key, record, ttl, at) or told
  end
  if record.state ~= 'c' or again then return '=stale' end
  local buckets, current, calls, failures = {}, nil, 1, 0
  for _, each in ipairs(record.buckets) do
    if each.slot > slot - BUCKETS and each.slot <= slot then
      buckets[#buckets + 1] = each
      if each.slot == slot then current = each end
      calls = calls + each.calls
      failures = failures + each.failures
    end
  end
  if not current then
    current = { slot = slot, calls = 0, failures = 0 }
    buckets[#buckets + 1] = current
  end
  record.buckets = buckets
  current.calls = current.calls + 1
  if sample == 'f' then
    current.failures = current.failures + 1
    failures = failures + 1
    local rate = failures / calls
    if calls >= tonumber(minimum) and rate >= tonumber(failure_rate) then return open(rate) end
  end
  return keep_circuit(key, record, closed_ttl, at) or '=counted'
end

local kinds =
  { r = release, u = unclaim, b = put_back, k = complete, p = unpermit, o = outcome }
local answer = { now }
for i, key in ipairs(KEYS) do
  answer[#answer + 1] = kinds[string.sub(ARGV[i], 1, 1)](key, string.sub(ARGV[i], 2))
end
return answer
`;
