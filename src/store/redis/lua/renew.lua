if mine and open then
  local until_ms = lease_from_now()
  return mark(state, flags, until_ms > lease_until and until_ms or lease_until)
end
return again(mine and state == 2 and 7 or 8)
