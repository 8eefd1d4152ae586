/**
 * Shared lines of the scripts that read a claim: `claim_under(key)` answers the fields of its record
 * (see `claimText`), nil when there is none, or an error text when something else stands there.
 */
export const CLAIM_RECORD = `
local function claim_under(key)
  local text = redis.pcall('GET', key)
  if not text then return nil end
  if type(text) == 'table' then return nil, text.err end
  local state, run, until_ms, token, fingerprint, outcome =
    string.match(text, '^([pdt]):(%d+):(%d+):([^:]*):([^:]*):(.*)$')
  if not state then return nil, 'no record of a claim' end
  return { text = text, state = state, run = run, until_ms = tonumber(until_ms), token = token,
    fingerprint = fingerprint, outcome = outcome }
end

local function whole(number)
  return string.format('%.0f', number)
end
`;
