-- ARGV: 2 claim id, 3 policy, 4 lease, 5 fingerprints of 37 bytes (secret, mode, hash), 6 the record after its envelope,
-- 7 whether replicas are waited for.
local asked, lease = tonumber(ARGV[3]), tonumber(ARGV[4])
local stored_lease = lease < 4294967295 and lease or 4294967295
if not r then
  r = pack(envelope, 79, newest, 1, asked, 0, 1, stored_lease, ARGV[2], now + lease, now, 0, now) .. ARGV[6]
  redis.call('SET', key, r)
  return {1, now, sub(r, 1, 128)}
end
if schema > newest then return answer(3) end
local stored, same = sub(r, 65, 69) .. sub(r, 73, 104), false
for i = 1, #ARGV[5], 37 do
  if sub(ARGV[5], i, i + 36) == stored then same = true end
end
if not same then return answer(4) end
local mine, live = claim == ARGV[2], now < lease_until
local stricter = recover > asked and recover or asked
local outcome, taint
if state == 2 then
  outcome = 2
elseif state == 3 then
  outcome = mine and 8 or nil
elseif state == 1 then
  if mine then
    outcome = 1
  elseif live then
    outcome = 3
  elseif stricter == 2 then
    local head = pack(envelope, 79, schema, 4, recover, flags - flags % 2 + 1, epoch, lease_ms, claim, lease_until, now,
      expires, created)
    redis.call('SETRANGE', key, 0, head)
    r = head .. sub(r, 65)
    outcome = 5
  end
  taint = true
else
  if mine then
    outcome = flags % 2 == 1 and 32 or 5
  elseif stricter == 2 then
    outcome = 5
  elseif live then
    outcome = 3
  end
  taint = true
end
if outcome then
  -- A write, so that there is something to wait for: an earlier answer may have been lost before its replicas had it.
  if ARGV[7] == '1' and (outcome == 1 or outcome == 2) then
    if expires ~= 0 then
      redis.call('PEXPIREAT', key, expires)
    else
      redis.call('SETRANGE', key, 0, sub(r, 1, 1))
    end
  end
  return answer(outcome)
end
-- Granted again: the next epoch, without payload. The fingerprint, the scope and the key stay.
flags = flags - flags % 2
if taint and flags % 4 < 2 then flags = flags + 2 end
r = pack(envelope, 79, schema, 1, stricter, flags, epoch + 1, stored_lease, ARGV[2], now + lease, now, 0, created)
  .. sub(r, 65, 69) .. '\0\0\0' .. sub(r, 73, 120) .. sub(ARGV[6], 57, 64) .. '\0\0\0\0' .. sub(r, 133, 133 + byte(r, 133))
redis.call('SET', key, r)
return {1, now, sub(r, 1, 128)}
