// Does to a machine what the console offers: power, pause, migration, disks, snapshots, maintenance, its manifest.
//
//   node --import tsx browser/actions.ts ADDRESS [NAMESPACE]
//
// It makes its own machines in NAMESPACE from the test guest's image, which the nodes must have, and removes them.
import type { Locator } from 'playwright-core';
import { assert, launch, run, until, watchPage, type Step } from './browser';

const [address = '', namespace = 'default'] = process.argv.slice(2);
if (!/^https?:\/\/.+#code=.+/.test(address)) {
  console.error('usage: actions.ts ADDRESS [NAMESPACE], with the address that `virtctl web --no-browser` prints');
  process.exit(2);
}
const mark = Date.now().toString(36);
const vm = `acts-${mark}`;
const copy = `copy-${mark}`;
const second = `second-${mark}`;
const data = `data-${mark}`;

const browser = await launch();
const page = await (await browser.newContext({ viewport: { width: 1280, height: 900 }, reducedMotion: 'reduce' })).newPage();
page.setDefaultTimeout(30_000);
const complaints: string[] = [];
watchPage(page, complaints);

interface Answer {
  code: number;
  body: { message?: string; spec?: { template?: { spec?: { domain?: { cpu?: { cores?: number } } } } } };
}

// The page's own session asks for what the walk needs besides the page.
async function api(method: string, path: string, body?: unknown): Promise<Answer> {
  return page.evaluate(async ({ method, path, body }) => {
    const headers: Record<string, string> = { 'X-Drydock-Session': sessionStorage.getItem('drydock-session') ?? '' };
    if (body !== undefined) headers['Content-Type'] = 'application/json';
    const response = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
    return { code: response.status, body: (await response.json()) as Answer['body'] };
  }, { method, path, body });
}

async function make(path: string, object: unknown): Promise<void> {
  const { code, body } = await api('POST', path, object);
  assert(code === 201, `making an object at ${path}: ${String(code)} ${body.message ?? ''}`);
}

const vms = `/apis/kubevirt.io/v1/namespaces/${namespace}/virtualmachines`;
const dataVolumes = `/apis/cdi.kubevirt.io/v1beta1/namespaces/${namespace}/datavolumes`;

function disk(name: string, source: unknown, storageClassName: string): unknown {
  return { metadata: { name }, spec: { source, storage: { storageClassName, accessModes: ['ReadWriteMany'], resources: { requests: { storage: '64Mi' } } } } };
}

const machine = {
  apiVersion: 'kubevirt.io/v1',
  kind: 'VirtualMachine',
  metadata: { name: vm },
  spec: {
    runStrategy: 'Always',
    dataVolumeTemplates: [disk(vm, { registry: { url: 'docker://drydock.dev/test-guest:devel', pullMethod: 'node' } }, 'shared')],
    template: {
      spec: {
        terminationGracePeriodSeconds: 10,
        domain: {
          cpu: { cores: 1 }, memory: { guest: '128Mi' },
          devices: { rng: {}, disks: [{ name: 'root', disk: { bus: 'virtio' } }], interfaces: [{ name: 'default', masquerade: {} }] },
        },
        networks: [{ name: 'default', pod: {} }],
        volumes: [{ name: 'root', dataVolume: { name: vm } }],
      },
    },
  },
};

const here = `#/machines/${namespace}/${vm}`;

async function open(hash: string): Promise<void> {
  await page.evaluate((h) => {
    location.hash = h;
  }, hash);
}

const button = (name: string): Locator => page.getByRole('button', { name, exact: true });
const dialog = (name: string): Locator => page.getByRole('dialog').getByRole('button', { name, exact: true });

async function status(want: string, seconds = 120): Promise<void> {
  await until(`the machine is ${want}`, async () => (await page.locator('.dd-title').innerText()).includes(want), seconds);
}

async function choose(action: string): Promise<void> {
  await button('More actions').click();
  await page.getByRole('menuitem', { name: new RegExp(`^${action}`) }).click();
}

async function node(): Promise<string> {
  return page.locator('dl').filter({ hasText: 'Node' }).first().locator('div', { hasText: /^Node/ }).first().innerText();
}

async function migrates(): Promise<void> {
  await open(here);
  const before = await node();
  await choose('Migrate');
  await page.getByRole('heading', { name: 'Migration', exact: true }).waitFor();
  await until('the machine is on another node', async () => (await node()) !== before, 180);
  await page.getByRole('heading', { name: 'Migration', exact: true }).waitFor({ state: 'detached', timeout: 60_000 });
  await status('Running');
}

async function plugs(): Promise<void> {
  await make(dataVolumes, { apiVersion: 'cdi.kubevirt.io/v1beta1', kind: 'DataVolume', ...(disk(data, { blank: {} }, 'shared') as object) });
  await open(`${here}/disks`);
  await button('Plug a disk').click();
  await until('the claim is offered', async () => (await page.locator(`#claim option[value="${data}"]`).count()) === 1);
  await page.locator('#claim').selectOption(data);
  await dialog('Plug a disk').click();
  const row = page.getByRole('row').filter({ hasText: data });
  await until('the disk is ready in the guest', async () => (await row.count()) > 0 && (await row.first().innerText()).includes('Ready'), 120);
  await button(`Unplug ${data}`).click();
  await dialog('Unplug').click();
  await until('the disk is unplugged', async () => (await row.count()) === 0, 120);
}

async function editsTheManifest(): Promise<void> {
  await open(`${here}/yaml`);
  const editor = page.locator('.cm-content');
  await editor.waitFor();
  const write = async (text: string): Promise<void> => {
    await editor.focus();
    await page.keyboard.press('Control+a');
    await page.keyboard.press('Delete');
    await page.keyboard.insertText(text);
  };
  const { body } = await api('GET', `${vms}/${vm}`);
  const cpu = body.spec?.template?.spec?.domain?.cpu;
  assert(cpu !== undefined, 'the machine has no CPUs');
  cpu.cores = 100_000;
  await write(JSON.stringify(body, null, 1));
  await button('Check').click();
  await page.getByText('The server refuses this manifest').waitFor();
  cpu.cores = 2;
  await write(JSON.stringify(body, null, 1));
  await button('Save').click();
  await page.getByText(`Saved: ${vm}`).waitFor();
  await open(here);
  await page.getByRole('heading', { name: 'Pending changes' }).waitFor();
  await page.getByText('By a restart').waitFor();
}

async function snapshotsAndRestores(): Promise<void> {
  await open(`${here}/snapshots`);
  await button('Take a snapshot').click();
  await page.locator('#snapshot-name').fill(`snap-${mark}`);
  await dialog('Take a snapshot').click();
  const restore = button(`Restore snap-${mark}`);
  await until('the snapshot is ready', async () => (await restore.count()) > 0 && (await restore.getAttribute('aria-disabled')) !== 'true', 120);
  await restore.click();
  await dialog('Restore').click();
  await page.getByRole('heading', { name: 'Restores' }).waitFor();
  const row = page.getByRole('row').filter({ hasText: `snap-${mark}-` });
  await until('the restore is complete', async () => (await row.first().innerText()).includes('Complete'), 180);
  await button(`Clone snap-${mark}`).click();
  await page.locator('#clone-name').fill(second);
  await dialog('Clone').click();
  const clone = page.getByRole('row').filter({ hasText: second });
  await until('the clone of the snapshot is complete', async () => (await clone.count()) > 0 && (await clone.innerText()).includes('Complete'), 180);
  await button(`Delete snap-${mark}`).click();
  await dialog('Delete').click();
  await until('the snapshot is deleted', async () => (await restore.count()) === 0, 60);
}

async function clones(): Promise<void> {
  await open(here);
  await choose('Clone');
  await page.locator('#clone-name').fill(copy);
  await dialog('Clone').click();
  await page.getByRole('heading', { name: 'Clones' }).waitFor();
  const row = page.getByRole('row').filter({ hasText: copy });
  await until('the clone is complete', async () => (await row.innerText()).includes('Complete'), 180);
  await row.getByRole('link', { name: copy }).click();
  await page.getByRole('heading', { name: copy, level: 1 }).waitFor();
  await status('Stopped');
}

async function maintains(): Promise<void> {
  await open(here);
  await status('Stopped');
  await choose('Begin maintenance');
  await dialog('Begin maintenance').click();
  await status('In maintenance');
  await page.getByRole('heading', { name: 'Maintenance', exact: true }).waitFor();
  assert((await button('Start').getAttribute('aria-disabled')) === 'true', 'a machine in maintenance can be started');
  await choose('End maintenance');
  await status('Stopped');
}

const steps: Step[] = [
  ['a machine with a disk runs', async () => {
    await page.goto(address);
    await page.getByRole('heading', { name: 'Machines' }).waitFor();
    await make(vms, machine);
    await open(here);
    await status('Running', 240);
  }],
  ['it is paused and continues', async () => {
    await choose('Pause');
    await status('Paused');
    await choose('Continue');
    await status('Running');
  }],
  ['it migrates', migrates],
  ['a disk is plugged and unplugged', plugs],
  ['its manifest is refused, then saved, and the change waits for a restart', editsTheManifest],
  ['a snapshot is taken, restored and cloned', snapshotsAndRestores],
  ['it is cloned', clones],
  ['it is maintained', maintains],
  ['it is started and stopped in bulk', async () => {
    await open(`#/machines?find=${vm}`);
    const row = page.getByRole('row').filter({ hasText: vm });
    await row.getByRole('checkbox').check();
    for (const [action, want] of [['Start', 'Running'], ['Stop', 'Stopped']] as const) {
      if (!(await row.getByRole('checkbox').isChecked())) await row.getByRole('checkbox').check();
      await button(action).click();
      await dialog(action).click();
      await until(`the row says ${want}`, async () => (await row.innerText()).includes(want), 180);
    }
  }],
];

const good = await run(steps, page, complaints);
for (const name of [vm, copy, second]) await api('DELETE', `${vms}/${name}`).catch(() => undefined);
await api('DELETE', `${dataVolumes}/${data}`).catch(() => undefined);
await browser.close();
process.exitCode = good ? 0 : 1;
