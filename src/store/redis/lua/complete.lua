if mine and open then return finish(2) end
return again(mine and state == 2 and 7 or 8)
