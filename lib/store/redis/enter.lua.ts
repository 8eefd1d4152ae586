import { CIRCUIT_RECORD } from './circuit.lua.js';
import { CLAIM_RECORD } from './claim.lua.js';
import { STORE_TIME } from './store-time.lua.js';

/**
 * Runs the steps of one `enter`.
 *
 * KEYS    one per step, in order
 * ARGV    one per step, then the deadline (store time, ms), then optionally 'look'
 *           f<max>:<windowMs>        fixed window
 *           b<capacityUs>:<costUs>   leaky bucket
 *           o<ttlMs>:<permits>:<probeMs>:<token>
 *                                    circuit
 *           l<ttlMs>:<token>         lease
 *           c<ttlMs>:<leaseMs>:<f|r>:<token>:<fingerprint>
 *                                    claim; an abandoned one refuses (f) or is taken over (r)
 *         'look': the limits decide, but charge nothing (the reply of the charge was lost)
 * answer  { now } when late; nothing was written then
 *         { now, a1, b1, c1, a2, b2, c2, ... }, three per step that ran
 *           fixed window   admitted 0|1, count, remaining ms
 *           leaky bucket   admitted 0|1, level us, retry ms
 *           lease          admitted 0|1, holder when 0, remaining ms when 0 (1: 1 if it was ours before)
 *           circuit        admitted 0|1, '<state letter>:<epoch>:<1 if it has just become half open>',
 *                          retry ms when 0 (0: not known); when 1, 0 for a permit that is new, else 1
 *           claim          1, run, 0 (1: it was ours before; a text: the record it took over)
 *                          0, '<i|a|d|t|m>:<run>:<holder>:<outcome>' (in progress, abandoned,
 *                          done, tombstone, mismatch), remaining ms when in progress
 *           circuit, lease, claim
 *                          -1, error text, 0: the key holds something else
 *
 * Numbers are integers below 2^53 and leave Lua as '%.0f': its own conversion rounds to 14 digits.
 */
export const ENTER = `${STORE_TIME}${CLAIM_RECORD}${CIRCUIT_RECORD}
if is_late(ARGV[#KEYS + 1]) then return { now } end
local look = ARGV[#KEYS + 2] == 'look'
local taken = {}

-- Ttl first: a key that is about to expire, or has lost its ttl, starts a new window.
local function fixed_window(key, max, window)
  local ttl = redis.call('PTTL', key)
  local count
  if ttl > 0 then
    if look then
      count = tonumber(redis.pcall('GET', key))
    else
      count = redis.pcall('INCR', key)
    end
  end
  if type(count) ~= 'number' or count < 1 then
    count, ttl = 1, tonumber(window)
    if not look then redis.call('SET', key, '1', 'PX', window) end
  end
  return count <= tonumber(max) and 1 or 0, count, ttl
end

local function stored_level(state)
  if type(state) ~= 'string' then return 0 end
  local level, last = string.match(state, '^(%d+):(%d+)$')
  if not level or #level > 16 or #last > 16 then return 0 end
  return math.max(0, level - math.max(0, now - last))
end

local function leaky_bucket(key, capacity, cost)
  local state = redis.pcall('GET', key)
  local level = stored_level(state)
  local projected = level + cost
  if projected > tonumber(capacity) then
    if state and redis.call('PTTL', key) == -1 then
      redis.call('PEXPIRE', key, whole(math.max(1, math.ceil(level / 1000))))
    end
    return 0, projected, math.ceil((projected - capacity) / 1000)
  end
  if look then return 1, level, 0 end
  local ttl = math.max(1, math.ceil(projected / 1000))
  redis.call('SET', key, whole(projected) .. ':' .. whole(now), 'PX', whole(ttl))
  return 1, projected, 0
end

-- The usual case: nothing stands there, and one command takes the key. An error is not told yet: what
-- stands there may have an answer that needs no room.
local function take_free(key, value, ttl)
  local saved = redis.pcall('SET', key, value, 'PX', ttl, 'NX')
  if not saved or saved.err then return false end
  taken[#taken + 1] = { key = key }
  return true
end

local function lease(key, ttl, token)
  if take_free(key, token, ttl) then return 1, '', 0 end
  local holder = redis.pcall('GET', key)
  if type(holder) == 'table' then return -1, holder.err, 0 end
  if not holder or holder == token then
    redis.call('SET', key, token, 'PX', ttl)
    if not holder then taken[#taken + 1] = { key = key } end
    return 1, '', holder and 1 or 0
  end
  local remaining = redis.call('PTTL', key)
  if remaining == -1 then
    redis.call('PEXPIRE', key, ttl)
    remaining = tonumber(ttl)
  end
  return 0, holder, math.max(1, remaining)
end

-- Another payload is told before anything else; only the owner's own token is not asked for it.
local function claim(key, ttl, rest)
  local lease_ms, mode, token, fingerprint = string.match(rest, '^(%d+):(%a):([^:]*):([^:]*)$')
  local at = math.floor(now / 1000)
  local tail = ':' .. whole(at + lease_ms) .. ':' .. token .. ':' .. fingerprint .. ':'
  if take_free(key, 'p:1' .. tail, whole(ttl + lease_ms)) then return 1, '1', 0 end
  local found, problem = claim_under(key)
  if problem then return -1, problem, 0 end
  local run, ours = '1', found and found.token == token
  if found then
    local refused
    if not ours and found.fingerprint ~= '' and fingerprint ~= '' and found.fingerprint ~= fingerprint then
      refused = 'm'
    elseif found.state ~= 'p' then
      refused = found.state
    elseif not ours and found.until_ms > at then
      refused = 'i'
    elseif not ours and mode == 'f' then
      refused = 'a'
    end
    if refused then
      if redis.call('PTTL', key) == -1 then
        redis.call('PEXPIRE', key, whole(found.state == 'p' and ttl + lease_ms or ttl))
      end
      local outcome = refused == 'd' and found.outcome or ''
      return 0, refused .. ':' .. found.run .. ':' .. found.token .. ':' .. outcome,
        refused == 'i' and found.until_ms - at or 0
    end
    run = ours and found.run or whole(found.run + 1)
  end
  if not ours then
    local remaining = redis.call('PTTL', key)
    if remaining == -1 then remaining = tonumber(ttl) end
    taken[#taken + 1] = { key = key, before = found and found.text, ttl = remaining }
  end
  redis.call('SET', key, 'p:' .. run .. tail, 'PX', whole(ttl + lease_ms))
  return 1, run, ours and 1 or found and found.text or 0
end

local function circuit(key, ttl, rest)
  local permits, probe_ms, token = string.match(rest, '^(%d+):(%d+):(.*)$')
  local text = redis.pcall('GET', key)
  if not text then return 1, 'c:0:0', 1 end
  -- The usual case: of a closed one nothing else is read, only that it is one.
  if type(text) == 'string' then
    local closed, past = string.match(text, '^(c:%d+):%d+:%d+:%d+|()')
    if closed and string.gsub(string.sub(text, past), '%d+,%d+,%d+;', '') == '|' then
      return 1, closed .. ':0', 1
    end
  end
  local record, problem = circuit_of(text)
  if problem then return -1, problem, 0 end
  local at, just = math.floor(now / 1000), 0
  local function told(admitted, third)
    return admitted, record.state .. ':' .. whole(record.epoch) .. ':' .. just, third
  end
  if redis.call('PTTL', key) == -1 then
    redis.call('PEXPIRE', key, whole(math.max(0, record.open_until - at) + ttl))
  end
  if record.state == 'C' or record.state == 'c' then return told(1, 1) end
  if record.state == 'O' then return told(0, 0) end
  if record.state == 'o' then
    if at < record.open_until then return told(0, record.open_until - at) end
    move_circuit(record, 'h', at)
    just = 1
  end
  local out, first = {}, nil
  for _, each in ipairs(record.permits) do
    if each.deadline > at then
      out[#out + 1] = each
      if not first or each.deadline < first then first = each.deadline end
      if each.token == token then return told(1, 1) end
    end
  end
  record.permits = out
  -- With none out the next one decides, also after the option was lowered in between.
  if first and #out + record.successes >= tonumber(permits) then
    return told(0, math.max(1, first - at))
  end
  out[#out + 1] = { token = token, deadline = at + probe_ms }
  -- A probe that could not be written down would not be the last to be let in.
  local unwritten = keep_circuit(key, record, ttl, at)
  if unwritten then error(unwritten, 0) end
  taken[#taken + 1] = { key = key, permit = token, ttl = ttl }
  return told(1, 0)
end

local function undo(held)
  if held.permit then
    local at, record = math.floor(now / 1000), circuit_under(held.key)
    take_permit(record, held.permit, at)
    keep_circuit(held.key, record, held.ttl, at)
  elseif held.before and held.ttl > 0 then
    redis.call('SET', held.key, held.before, 'PX', held.ttl)
  else
    redis.call('DEL', held.key)
  end
end

local kinds = { f = fixed_window, b = leaky_bucket, l = lease, c = claim, o = circuit }
local answer = { now }
for i, key in ipairs(KEYS) do
  local kind, first, second = string.match(ARGV[i], '^(%a)(%d+):(.*)$')
  local admitted, b, c = kinds[kind](key, first, second)
  answer[#answer + 1] = admitted
  answer[#answer + 1] = b
  answer[#answer + 1] = c
  if admitted ~= 1 then
    for _, held in ipairs(taken) do undo(held) end
    break
  end
end
return answer
`;
