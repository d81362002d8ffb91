const Module = require('node:module');
const load = Module._load;
Module._load = function (name, ...rest) {
  return /^(@prisma\/(dev|studio-core)|mysql2|postgres)(\/|$)/.test(name) ? {} : load.call(this, name, ...rest);
};
