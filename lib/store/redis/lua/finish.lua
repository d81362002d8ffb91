-- Another state, with this payload.
if to then
  local payload, ttl = more, (unpack('<I8', r, 121))
  if to == 4 then
    flags = flags - flags % 2
    if now < lease_until then lease_until = now end
  else
    if ms ~= 0 then ttl = ms end
    flags = 0
    expires = now + (brief and brief < ttl and brief or ttl)
  end
  local head = pack('<BBBBBxxxI4I4c16I8I8I8I8c5BI2c48I8', 79, schema, to, recover, flags, epoch, lease_ms, claim, lease_until, now,
    expires, created, sub(r, 65, 69), kind, status, sub(r, 73, 120), ttl)
  local bytes = head .. pack('<I4', #payload) .. sub(r, 133, 133 + byte(r, 133)) .. payload
  if to ~= 4 then
    redis.call('SET', key, bytes, 'PXAT', expires)
  else
    redis.call('SET', key, bytes)
  end
  return head
end
