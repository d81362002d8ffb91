// A Chromium with a profile of its own below a directory. Node's modules are in the current directory.
import fs from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';

export const load = createRequire(path.join(process.cwd(), 'x.js'));

export async function launch(directory, options = {}) {
    const { chromium } = load('playwright-core');
    const context = await chromium.launchPersistentContext(fs.mkdtempSync(path.join(directory, 'profile-')), {
        executablePath: '/usr/bin/chromium',
        headless: true,
        args: [
            '--headless',
            '--no-sandbox',
            '--disable-gpu',
            '--disable-quic',
            '--no-first-run',
            '--disable-background-networking',
            '--disable-component-update',
            '--disable-sync',
        ],
        ...options,
    });
    context.setDefaultTimeout(60000);
    return { context, page: context.pages()[0] || (await context.newPage()) };
}
