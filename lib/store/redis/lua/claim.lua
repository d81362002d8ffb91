local id = sub(said, 17, 32)
waits = waits == 1
if not r then
  -- It was there and is over.
  redis.call('SET', key, pack('<c32I8I8I8I8', said, now + lease, now, 0, now) .. sub(said, 65))
  return now
end
local print = sub(r, 65, 69) .. sub(r, 73, 104)
local same = print == sub(said, 65, 69) .. sub(said, 73, 104)
for i = 1, more and #more or 0, 37 do
  if sub(more, i, i + 36) == print then same = true end
end
local mine, live = claim == id, now < lease_until
local stricter, taint = byte(said, 4), state == 1 or state == 4
if recover > stricter then stricter = recover end
if schema > newest then
  outcome = 3
elseif not same then
  outcome = 4
elseif state == 2 then
  outcome = 2
elseif state == 3 then
  outcome = mine and 8 or nil
elseif state == 1 and mine then
  outcome = 1
elseif state == 1 and live then
  outcome = 3
elseif state == 1 and stricter == 2 then
  local head = pack(envelope, 79, schema, 4, recover, flags - flags % 2 + 1, epoch, lease_ms, claim, lease_until, now, expires,
    created)
  redis.call('SETRANGE', key, 0, head)
  r = head .. sub(r, 65)
  outcome = 5
elseif state == 4 and mine then
  outcome = flags % 2 == 1 and 32 or 5
elseif state == 4 and stricter == 2 then
  outcome = 5
elseif state == 4 and live then
  outcome = 3
end
if not outcome then
  -- Granted again: the next epoch, without payload. The fingerprint, the scope and the key stay.
  flags = flags - flags % 2
  if taint and flags % 4 < 2 then flags = flags + 2 end
  -- Released, and not kept for less than its ttl: it may have taken effect before that.
  if state == 3 and flags % 8 < 4 and not (expires ~= 0 and expires < changed + unpack('<I8', r, 121)) then flags = flags + 4 end
  local lease_stored = unpack('<I4', said, 13)
  local head = pack(envelope, 79, schema, 1, stricter, flags, epoch + 1, lease_stored, id, now + lease, now, 0, created)
    .. sub(r, 65, 69) .. '\0\0\0' .. sub(r, 73, 120) .. sub(said, 121, 128)
  redis.call('SET', key, head .. '\0\0\0\0' .. sub(r, 133, 133 + byte(r, 133)))
  return head
end
