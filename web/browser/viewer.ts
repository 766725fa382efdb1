// The console of somebody who may only look, and only in one namespace.
//
//   node --import tsx browser/viewer.ts ADDRESS NAMESPACE/VM
//
// ADDRESS is from a `virtctl web` whose kubeconfig has the role view in NAMESPACE and nothing else.
import type { Locator } from 'playwright-core';
import { assert, axe, launch, run, until, watchPage, type Step } from './browser';

const [address = '', machine = 'default/vm-drydock'] = process.argv.slice(2);
if (!/^https?:\/\/.+#code=.+/.test(address)) {
  console.error('usage: viewer.ts ADDRESS [NAMESPACE/VM], with the address that `virtctl web --no-browser` prints');
  process.exit(2);
}
const [namespace = '', vm = ''] = machine.split('/');

const browser = await launch();
const page = await (await browser.newContext({ viewport: { width: 1280, height: 900 }, reducedMotion: 'reduce' })).newPage();
page.setDefaultTimeout(20_000);
const complaints: string[] = [];
watchPage(page, complaints);
const writes: string[] = [];
page.on('request', (request) => {
  const path = new URL(request.url()).pathname;
  if (request.method() !== 'GET' && path !== '/session' && !path.includes('/selfsubject')) writes.push(`${request.method()} ${path}`);
});

async function open(hash: string): Promise<void> {
  await page.evaluate((h) => {
    location.hash = h;
  }, hash);
}

async function isRefused(button: Locator): Promise<void> {
  await until('the button is off', async () => (await button.getAttribute('aria-disabled')) === 'true', 10);
  await button.focus();
  await page.getByRole('tooltip').getByText(/You may not/).waitFor();
  await button.press('Enter');
  await page.keyboard.press('Escape');
}

const button = (name: string): Locator => page.getByRole('button', { name, exact: true });
const here = `#/machines/${namespace}/${vm}`;

const steps: Step[] = [
  ['the list begins with the only namespace that may be read', async () => {
    await page.goto(address);
    await page.getByRole('link', { name: vm }).waitFor();
    assert(page.url().includes(`namespace=${namespace}`), page.url());
  }],
  ['another namespace is refused in the server’s words', async () => {
    await open('#/machines?namespace=kube-system');
    await page.getByText(/is forbidden/).first().waitFor();
    await page.getByText(/Ask the cluster’s administrator/).first().waitFor();
    const faults = await axe(page);
    assert(faults.length === 0, faults.join('\n'));
  }],
  ['actions are shown, off, with the missing right', async () => {
    await open(here);
    await page.getByRole('heading', { name: vm, level: 1 }).waitFor();
    await isRefused(button('Stop'));
    await button('More actions').click();
    for (const action of ['Migrate', 'Begin maintenance', 'Delete']) {
      const item = page.getByRole('menuitem', { name: new RegExp(`^${action}`) });
      assert((await item.getAttribute('aria-disabled')) === 'true', `${action} is on`);
      assert((await item.innerText()).includes('You may not'), `${action} has no reason`);
    }
    await page.keyboard.press('Escape');
    const faults = await axe(page);
    assert(faults.length === 0, faults.join('\n'));
  }],
  ['the console says which right is missing', async () => {
    await open(`${here}/console`);
    await page.getByText(/You may not get virtualmachineinstances\/console/).waitFor();
  }],
  ['disks, snapshots and the form are off as well', async () => {
    await open(`${here}/disks`);
    await isRefused(button('Plug a disk'));
    await open(`${here}/snapshots`);
    await isRefused(button('Take a snapshot'));
    await open(`#/create?namespace=${namespace}`);
    await isRefused(button('Create'));
  }],
  ['nothing was written', () => {
    assert(writes.length === 0, writes.join('\n'));
    return Promise.resolve();
  }],
];

const good = await run(steps, page, complaints);
await browser.close();
process.exitCode = good ? 0 : 1;
