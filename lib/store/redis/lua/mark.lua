-- Another state or lease; the rest stays.
if to then
  local head = pack(envelope, 79, schema, to, recover, flags, epoch, lease_ms, claim, lease_until, now, expires, created)
  redis.call('SETRANGE', key, 0, head)
  return head .. sub(r, 65, 128)
end
