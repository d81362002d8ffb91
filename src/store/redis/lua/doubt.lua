if mine and (state == 1 or (state == 4 and flags % 2 == 1)) then return mark(4, flags - flags % 2, lease_from_now()) end
if mine and state == 4 then return again(6) end
return again(mine and state == 2 and 7 or 8)
