-- Outcome 6: removed. Redis removes what expired by itself; left are records that nobody came back for.
if expired then
  redis.call('DEL', key)
  return {6, now, ''}
end
if r and schema <= newest and (state == 1 or state == 4) and recover ~= 2 then
  if now >= lease_until + unpack('<I8', r, 121) then
    redis.call('DEL', key)
    return {6, now, ''}
  end
end
return {9, now, ''}
