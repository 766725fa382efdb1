// After the end of virtctl web somebody else listens on its port, and answers whatever an open page asks.
import { createServer } from 'node:http';
import { assert, launch, run, until, watchPage, type Step } from './browser';

const address = process.argv[2] ?? '';
const virtctl = process.env.DRYDOCK_WEB_PROCESS ?? '';
const { hostname, port } = new URL(address);
assert(hostname.endsWith('.localhost') && virtctl !== '', 'run hack/web-browser');

const browser = await launch();
const page = await (await browser.newContext()).newPage();
const complaints: string[] = [];
watchPage(page, complaints);

const lie = 'machine-of-a-stranger';
const secrets: string[] = [];
const stranger = createServer((request, response) => {
  if (request.headers['x-drydock-session'] !== undefined) secrets.push(request.url ?? '');
  const item = { metadata: { name: lie, namespace: 'default', resourceVersion: '1' }, spec: { template: { spec: {} } }, status: { printableStatus: 'Running' } };
  response.setHeader('Content-Type', 'application/json');
  response.end(JSON.stringify({ proof: '00'.repeat(32), metadata: { resourceVersion: '1' }, items: [item] }));
});

function listens(): Promise<boolean> {
  return new Promise((done) => {
    stranger.once('error', () => {
      done(false);
    });
    stranger.listen(Number(port), '127.0.0.1', () => {
      done(true);
    });
  });
}

const steps: Step[] = [
  ['the list is live', async () => {
    await page.goto(address);
    await page.getByText('Live', { exact: true }).waitFor();
    await page.evaluate(() => {
      sessionStorage.setItem('drydock-new-machine', '{"userData":"a password"}');
    });
  }],
  ['virtctl web ends, and a stranger takes its port', async () => {
    process.kill(Number(virtctl), 'SIGINT');
    await until('the port is free', listens);
    complaints.length = 0; // connections broke
  }],
  ['the page ends, and tells why', async () => {
    await page.getByText('Another program answers').waitFor();
    complaints.length = 0;
    assert((await page.getByText(lie).count()) === 0, 'the page shows what the stranger answered');
  }],
  ['the stranger has got nothing that the page knows', async () => {
    assert(secrets.length === 0, `the session was sent with ${secrets.join(', ')}`);
    const kept = await page.evaluate(() => sessionStorage.length);
    assert(kept === 0, `the tab keeps ${String(kept)} values for the stranger's page`);
  }],
];

const good = await run(steps, page, complaints);
await browser.close();
stranger.close();
process.exitCode = good ? 0 : 1;
