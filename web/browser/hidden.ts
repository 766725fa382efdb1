// Counts what the console asks while its tab is hidden, and watches it come back.
//
//   node --import tsx browser/hidden.ts ADDRESS [NAMESPACE/VM]
import { assert, launch, run, until, watchPage, type Step } from './browser';

const [address = '', machine = 'default/vm-drydock'] = process.argv.slice(2);
if (!/^https?:\/\/.+#code=.+/.test(address)) {
  console.error('usage: hidden.ts ADDRESS [NAMESPACE/VM], with the address that `virtctl web --no-browser` prints');
  process.exit(2);
}
const [namespace = '', vm = ''] = machine.split('/');

const browser = await launch();
const page = await (await browser.newContext()).newPage();
const complaints: string[] = [];
watchPage(page, complaints);

let asked = 0;
let sockets = 0;
page.on('request', () => asked++);
page.on('websocket', (socket) => {
  asked++;
  // The one that lives as long as the session is no watch.
  if (socket.url().endsWith('/session')) return;
  sockets++;
  socket.on('close', () => sockets--);
});

async function setHidden(hidden: boolean): Promise<void> {
  await page.evaluate((value) => {
    Object.defineProperty(document, 'visibilityState', { value: value ? 'hidden' : 'visible', configurable: true });
    document.dispatchEvent(new Event('visibilitychange'));
  }, hidden);
}

const steps: Step[] = [
  ['the list is live', async () => {
    await page.clock.install();
    await page.goto(address);
    await page.getByRole('link', { name: vm }).waitFor();
    await until('two watches are open', () => Promise.resolve(sockets >= 2), 20);
  }],
  ['a short look elsewhere changes nothing', async () => {
    await setHidden(true);
    await page.clock.runFor(5_000);
    await setHidden(false);
    await page.clock.runFor(60_000);
    assert(sockets >= 2, `${String(sockets)} watches are open`);
  }],
  ['after half a minute no watch is open', async () => {
    await setHidden(true);
    await page.clock.runFor(31_000);
    await until('the watches are closed', () => Promise.resolve(sockets === 0), 10);
  }],
  ['nothing is asked in an hour', async () => {
    asked = 0;
    await page.clock.runFor(3_600_000);
    assert(asked === 0, `${String(asked)} requests were made`);
  }],
  ['the watches go on, without a new list', async () => {
    const lists: string[] = [];
    page.on('request', (request) => {
      if (request.url().includes('limit=')) lists.push(request.url());
    });
    await setHidden(false);
    await until('the watches are open again', () => Promise.resolve(sockets >= 2), 20);
    await page.getByText('Live', { exact: true }).waitFor();
    assert(lists.length === 0, lists.join('\n'));
    assert((await page.getByText(namespace).count()) > 0, 'the list is empty');
  }],
];

const good = await run(steps, page, complaints);
await browser.close();
process.exitCode = good ? 0 : 1;
