-- Every script begins with this: the time, and what the record's envelope says (docs/format.md). KEYS[1] is the record,
-- ARGV[1] the newest schema that the caller can read. Answers are {outcome, now, bytes}; outcome -1: this is not a record.
-- In the answer, bytes are the whole record where it has a payload that the caller does not know yet, else its first 128.
local key, newest = KEYS[1], tonumber(ARGV[1])
local sub, byte, pack, unpack = string.sub, string.byte, struct.pack, struct.unpack
local envelope = '<BBBBBxxxI4I4c16I8I8I8I8'
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local r = redis.call('GET', key)
local magic, schema, state, recover, flags, epoch, lease_ms, claim, lease_until, changed, expires, created
local expired = false
if r then
  if #r < 64 then return {-1, now, ''} end
  magic, schema, state, recover, flags, epoch, lease_ms, claim, lease_until, changed, expires, created = unpack(envelope, r)
  if magic ~= 79 or (schema <= newest and #r < 133) then return {-1, now, ''} end
  -- A clock that went back must not shorten or revive anything.
  if changed > now then now = changed end
  -- What is over counts as none, whether or not Redis has removed it yet.
  if (state == 2 or state == 3) and expires ~= 0 and now >= expires and schema <= newest then
    expired = true
    r = false
  end
end
local function answer(outcome)
  if not r then return {outcome, now, ''} end
  if schema > newest then return {outcome, now, sub(r, 1, 64)} end
  if outcome == 6 or byte(r, 70) == 0 then return {outcome, now, sub(r, 1, 128)} end
  return {outcome, now, r}
end
