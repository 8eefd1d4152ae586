/**
 * Shared lines of the scripts that touch a circuit breaker; the rules are those of `circuit.ts`, and
 * the record is the text of `circuitText`. Needs `whole`.
 *
 * `circuit_of(text)` answers the record that `GET` has found, nil when there is none, or an error text
 * when something else stands there; `keep_circuit` writes it.
 */
export const CIRCUIT_RECORD = `
local BUCKETS = 10

local function circuit_of(text)
  if not text then return nil end
  if type(text) == 'table' then return nil, text.err end
  local state, epoch, open_until, opens, successes, past, out =
    string.match(text, '^([cohOC]):(%d+):(%d+):(%d+):(%d+)|([^|]*)|(.*)$')
  if not state or string.gsub(past, '%d+,%d+,%d+;', '') ~= '' or string.gsub(out, '[^,;]+,%d+;', '') ~= '' then
    return nil, 'no record of a circuit'
  end
  local record = { state = state, epoch = tonumber(epoch), open_until = tonumber(open_until),
    opens = tonumber(opens), successes = tonumber(successes), buckets = {}, permits = {} }
  for slot, calls, failures in string.gmatch(past, '(%d+),(%d+),(%d+);') do
    record.buckets[#record.buckets + 1] =
      { slot = tonumber(slot), calls = tonumber(calls), failures = tonumber(failures) }
  end
  for token, deadline in string.gmatch(out, '([^,;]+),(%d+);') do
    record.permits[#record.permits + 1] = { token = token, deadline = tonumber(deadline) }
  end
  return record
end

local function circuit_under(key)
  return circuit_of(redis.pcall('GET', key))
end

local function keep_circuit(key, record, ttl, at)
  local past, out = {}, {}
  for i, each in ipairs(record.buckets) do
    past[i] = whole(each.slot) .. ',' .. whole(each.calls) .. ',' .. whole(each.failures) .. ';'
  end
  for i, each in ipairs(record.permits) do
    out[i] = each.token .. ',' .. whole(each.deadline) .. ';'
  end
  local saved = redis.pcall('SET', key, record.state .. ':' .. whole(record.epoch) .. ':' .. whole(record.open_until)
    .. ':' .. whole(record.opens) .. ':' .. whole(record.successes)
    .. '|' .. table.concat(past) .. '|' .. table.concat(out),
    'PX', whole(math.max(0, record.open_until - at) + ttl))
  return saved.err
end

local function move_circuit(record, state, at)
  record.state = state
  record.epoch = math.max(record.epoch + 1, at)
  record.successes = 0
  record.permits = {}
  record.buckets = {}
end

-- One that has lapsed is nobody's any more.
local function take_permit(record, token, at)
  for i, each in ipairs(record.permits) do
    if each.token == token and each.deadline > at then
      table.remove(record.permits, i)
      return true
    end
  end
  return false
end
`;
