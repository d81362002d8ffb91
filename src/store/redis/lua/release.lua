if mine and open then
  -- An earlier epoch ended in doubt: that this one did nothing does not settle it.
  if flags % 4 >= 2 then
    return store(4, flags - flags % 2, lease_until < now and lease_until or now, expires, record_ttl())
  end
  return finish(3)
end
if mine and state == 3 then return again(6) end
return again(mine and state == 2 and 7 or 8)
