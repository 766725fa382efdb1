// Walks through the console in a real browser, with a real guest.
//
//   node --import tsx browser/walk.ts ADDRESS [NAMESPACE/VM]
//
// ADDRESS is the line that `virtctl web --no-browser` prints. The VM runs the test guest, whose login is guest, guest.
import type { Locator, Page } from 'playwright-core';
import { assert, axe, launch, run, until, watchPage, type Step } from './browser';

const [address = '', machine = 'default/vm-drydock'] = process.argv.slice(2);
if (!/^https?:\/\/.+#code=.+/.test(address)) {
  console.error('usage: walk.ts ADDRESS [NAMESPACE/VM], with the address that `virtctl web --no-browser` prints');
  process.exit(2);
}
const [namespace = '', vm = ''] = machine.split('/');
const shots = process.env.DRYDOCK_WEB_SHOTS ?? '';
const made = `walk-${Date.now().toString(36)}`;

const browser = await launch();
const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, reducedMotion: 'reduce' });
const page = await context.newPage();
page.setDefaultTimeout(30_000);
const complaints: string[] = [];
watchPage(page, complaints);

async function open(hash: string): Promise<void> {
  await page.evaluate((h) => {
    location.hash = h;
  }, hash);
}

const button = (name: string | RegExp): Locator => page.getByRole('button', { name });
const here = `#/machines/${namespace}/${vm}`;

async function consoleText(): Promise<string> {
  return page.locator('.xterm-rows').innerText();
}

async function answer(prompt: RegExp, text: string): Promise<void> {
  await until(`the guest prints ${String(prompt)}`, async () => prompt.test(await consoleText()));
  await page.keyboard.type(text, { delay: 20 });
  await page.keyboard.press('Enter');
}

async function typesInTheConsole(): Promise<void> {
  await open(`${here}/console`);
  await page.getByText('Connected', { exact: true }).waitFor();
  await page.locator('.xterm-helper-textarea').focus();
  await page.keyboard.press('Enter');
  await until('the guest prompts', async () => /(login:|[$#])\s*$/.test((await consoleText()).trimEnd()));
  if (/login:\s*$/.test((await consoleText()).trimEnd())) {
    await answer(/login:/, 'guest');
    await answer(/[Pp]assword:/, 'guest');
  }
  await answer(/[$#]\s*$/, 'echo answer-$((6*7))');
  await until('the guest answers', async () => (await consoleText()).includes('answer-42'));
}

async function pixels(): Promise<string> {
  return page.locator('.dd-screen canvas').evaluate((canvas) => (canvas as HTMLCanvasElement).toDataURL());
}

async function seesTheScreenChange(): Promise<void> {
  await open(`${here}/screen`);
  await page.getByText('Connected', { exact: true }).waitFor();
  await until('the screen is not empty', async () => (await pixels()).length > 3000);
  const before = await pixels();
  await page.locator('.dd-screen canvas').focus();
  await page.keyboard.type('walk', { delay: 50 });
  await until('the screen shows the typed keys', async () => (await pixels()) !== before);
  await page.keyboard.press('Enter');
}

async function createsWithTwoFaults(): Promise<void> {
  await open(`#/create?namespace=${namespace}`);
  await page.getByLabel('Name', { exact: false }).first().fill('Two_Faults');
  await page.locator('#create-image').fill('drydock.dev/test-guest:devel');
  await page.locator('#create-memory').fill('1');
  await button('Create').click();
  await page.getByText(/The server refuses this: \d+ fault/).waitFor();
  for (const field of ['name', 'memory']) {
    const invalid = await page.locator(`#create-${field}`).getAttribute('aria-invalid');
    const help = await page.locator(`#create-${field}-help`).innerText();
    assert(invalid === 'true', `${field} is not marked: ${help}`);
  }
  await page.locator('#create-name').fill(made);
  await page.locator('#create-memory').fill('128Mi');
  await button('Create').click();
  await page.getByRole('heading', { name: made, level: 1 }).waitFor();
  await until('the machine runs', async () => (await page.locator('.dd-title').innerText()).includes('Running'), 120);
}

async function importsWithTwoFaults(): Promise<void> {
  await open(`#/volumes?namespace=${namespace}`);
  await button('Import an image').click();
  const form = page.getByRole('dialog');
  await form.locator('#import-name').fill('Two_Faults');
  await form.locator('#import-url').fill('ftp://example.com/image');
  await form.locator('#import-size').fill('64Mi');
  await form.getByRole('button', { name: 'Import', exact: true }).click();
  await form.getByText(/The server refuses this: \d+ fault/).waitFor();
  for (const field of ['name', 'url']) {
    const invalid = await form.locator(`#import-${field}`).getAttribute('aria-invalid');
    assert(invalid === 'true', `${field} is not marked: ${await form.innerText()}`);
  }
  const faults = await axe(page);
  assert(faults.length === 0, faults.join('\n'));
  await form.locator('#import-name').fill(made);
  await form.locator('#import-url').fill('docker://drydock.dev/no-such-image:devel');
  await form.getByRole('button', { name: 'Import', exact: true }).click();
  await form.waitFor({ state: 'detached' });
  const row = page.getByRole('grid', { name: 'DataVolumes' }).getByRole('row').filter({ hasText: made });
  await until('the volume says something', async () => !(await row.innerText()).includes('Not begun'));
  await row.getByRole('button', { name: `Delete ${made}` }).click();
  await page.getByRole('dialog').getByRole('textbox').fill(made);
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
  await until('the volume is gone', async () => (await row.count()) === 0, 60);
}

async function showsTypes(): Promise<void> {
  await open('#/types');
  const types = page.getByRole('grid', { name: 'Instance types' });
  await types.getByRole('row').filter({ hasText: 'u1.medium' }).waitFor();
  await page.getByLabel('Find types and preferences by name').fill('u1.medium');
  await until('one type is left', async () => (await types.getByRole('row').count()) === 2);
  await open(`#/create?namespace=${namespace}`);
  await page.locator('#create-instanceType').selectOption('VirtualMachineClusterInstancetype/u1.medium');
  await page.locator('#create-memory').waitFor({ state: 'detached' });
  await page.getByText('name: u1.medium').waitFor();
  await page.locator('#create-instanceType').selectOption('');
}

async function deletes(): Promise<void> {
  await open(`#/machines/${namespace}/${made}`);
  await button('More actions').click();
  await page.getByRole('menuitem', { name: 'Delete' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('textbox').fill(made);
  await dialog.getByRole('button', { name: 'Delete' }).click();
  await page.getByRole('heading', { name: 'Machines' }).waitFor();
  await until('the machine is gone', async () => (await page.getByRole('link', { name: made }).count()) === 0, 120);
}

async function pressUntil(key: string, what: string, test: () => Promise<boolean>): Promise<void> {
  for (let i = 0; i < 60; i++) {
    if (await test()) return;
    await page.keyboard.press(key);
  }
  throw new Error(`${what} is not reached by ${key}`);
}

async function focused(): Promise<string> {
  return page.evaluate(() => document.activeElement?.textContent ?? '');
}

async function walksByKeyboard(): Promise<void> {
  await open('#/nodes');
  await page.reload();
  await page.getByRole('heading', { name: 'Nodes' }).waitFor();
  await page.keyboard.press('Tab');
  assert((await focused()).includes('Skip to content'), `the first stop is ${await focused()}`);
  await pressUntil('Tab', 'the link to the machines', async () => (await focused()) === 'Machines');
  await page.keyboard.press('Enter');
  await page.getByRole('link', { name: vm }).waitFor();
  await pressUntil('Tab', `the link to ${vm}`, async () => (await focused()) === vm);
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: vm }).waitFor();
  await pressUntil('Tab', 'the tab of the console', async () => (await focused()) === 'Serial console');
  await page.keyboard.press('Enter');
  await page.getByText('Connected', { exact: true }).waitFor();
  await page.keyboard.press('Control+]');
  await until('the focus has left the console', async () => (await focused()) === 'Connect again', 5);
}

const screens = [
  '#/machines', here, `${here}/console`, `${here}/screen`, `${here}/disks`, `${here}/snapshots`, `${here}/events`, `${here}/yaml`,
  '#/create', '#/volumes', '#/types', '#/nodes', '#/migrations', '#/no/such/page',
];

async function settled(of: Page): Promise<void> {
  await until('the screen is there', async () => {
    const busy = await of.locator('[role=progressbar]').count();
    const drawn = await of.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))).then(() => true));
    return drawn && busy === 0 && (await of.locator('h1').count()) > 0;
  }, 20);
}

async function everyScreen(check: (screen: string) => Promise<string[]>): Promise<void> {
  const faults: string[] = [];
  for (const screen of screens) {
    await open(screen);
    await settled(page);
    faults.push(...(await check(screen)).map((fault) => `${screen}: ${fault}`));
  }
  assert(faults.length === 0, faults.join('\n'));
}

// Headings that are cut, or that leave their cell. On a narrow screen each cell has its heading before it.
async function cutHeadings(): Promise<string[]> {
  return page.evaluate(() => [...document.querySelectorAll<HTMLElement>('th, th .pf-v6-c-table__text')]
    .filter((e) => e.checkVisibility() && e.scrollWidth > e.clientWidth)
    .map((e) => `the heading “${e.innerText}” needs ${String(e.scrollWidth)} pixels and has ${String(e.clientWidth)}`));
}

async function showsPictures(): Promise<void> {
  const asked: string[] = [];
  page.on('request', (request) => {
    if (request.url().includes('/vnc/screenshot')) asked.push(request.url());
  });
  await open('#/machines');
  await page.reload();
  const picture = page.getByRole('img', { name: `Picture of the screen of ${vm}`, exact: true });
  await picture.waitFor();
  const colors = await picture.locator('canvas').evaluate((canvas: HTMLCanvasElement) => {
    const { data } = canvas.getContext('2d')?.getImageData(0, 0, canvas.width, canvas.height) ?? { data: [] };
    return new Set(Array.from({ length: data.length / 4 }, (_, i) => `${String(data[4 * i])} ${String(data[4 * i + 1])} ${String(data[4 * i + 2])}`)).size;
  });
  assert(colors > 1, 'the picture has one colour');
  await open(here);
  await picture.waitFor();
  await open('#/machines');
  await page.getByLabel('Pictures of screens').uncheck();
  await picture.waitFor({ state: 'detached' });
  const before = asked.length;
  assert(before >= 2 && before < 20, `${String(before)} pictures were asked for`);
  await page.reload();
  await page.getByRole('link', { name: vm }).waitFor();
  assert(!(await page.getByLabel('Pictures of screens').isChecked()), 'the choice is forgotten');
  assert(asked.length === before, 'a picture is asked for although they are off');
  await page.getByLabel('Pictures of screens').check();
  await picture.waitFor();
}

async function noWider(): Promise<string[]> {
  const width = await page.evaluate(() => document.documentElement.scrollWidth);
  return width > 320 ? [`is ${String(width)} pixels wide`] : [];
}

async function outlivesAFault(): Promise<void> {
  await open('#/create');
  await page.reload();
  await page.locator('#create-name').fill('typed-before');
  await page.route('**/assets/*.js', (route) => route.abort());
  await open('#/migrations');
  await page.getByRole('heading', { name: 'This part of the page has failed' }).waitFor();
  const faults = await axe(page);
  assert(faults.length === 0, faults.join('\n'));
  if (shots !== '') await page.screenshot({ path: `${shots}/fault.png` });
  await open('#/machines');
  await page.getByRole('link', { name: vm }).waitFor();
  await open('#/migrations');
  await page.unroute('**/assets/*.js');
  await button('Try again').click();
  await page.getByRole('heading', { name: 'Migrations', level: 1 }).waitFor();
  await open('#/create');
  const kept = await page.locator('#create-name').inputValue();
  assert(kept === 'typed-before', `the form has the name ${kept}`);
  // The browser tells of each part that it could not load.
  const unexpected = complaints.filter((c) => !c.includes('dynamically imported module'));
  assert(unexpected.length === 0, unexpected.join('\n'));
  complaints.length = 0;
}

const steps: Step[] = [
  ['the address opens the list, and its code leaves the address', async () => {
    await page.goto(address);
    await page.getByRole('link', { name: vm }).waitFor();
    assert(!page.url().includes('code'), page.url());
    await page.getByText('Live', { exact: true }).waitFor();
  }],
  ['a stolen address is refused', async () => {
    const thief = await (await browser.newContext()).newPage();
    await thief.goto(address);
    await thief.getByRole('heading', { name: 'This address opens no session' }).waitFor();
    await thief.context().close();
  }],
  ['a reload keeps the session', async () => {
    await page.reload();
    await page.getByRole('link', { name: vm }).waitFor();
  }],
  ['a machine opens, and the back button returns', async () => {
    await page.getByRole('link', { name: vm }).click();
    await page.getByRole('heading', { name: vm }).waitFor();
    await until('the machine runs', async () => (await page.locator('.dd-title').innerText()).includes('Running'));
    await page.goBack();
    await page.getByRole('heading', { name: 'Machines' }).waitFor();
  }],
  ['words filter the list', async () => {
    await page.getByLabel(/^Find machines/).fill('no-such-machine');
    await page.getByText('No machine matches').waitFor();
    await page.getByLabel(/^Find machines/).fill(vm);
    await page.getByRole('link', { name: vm }).waitFor();
  }],
  ['the guest answers in the serial console', typesInTheConsole],
  ['the pixels of the screen change', seesTheScreenChange],
  ['the list and the machine have a picture of the screen, which can be switched off', showsPictures],
  ['a form with two faults has both at their fields, and creates when they are mended', createsWithTwoFaults],
  ['an import with two faults has both at their fields, and its volume is listed', importsWithTwoFaults],
  ['instance types are listed, and chosen in the form', showsTypes],
  ['a machine is deleted when its name is typed', deletes],
  ['a fault in one part leaves the others', outlivesAFault],
  ['the keyboard alone is enough', walksByKeyboard],
  ['axe finds nothing in the light', async () => {
    await page.emulateMedia({ colorScheme: 'light', reducedMotion: 'reduce' });
    await everyScreen(() => axe(page));
  }],
  ['axe finds nothing in the dark', async () => {
    await page.emulateMedia({ colorScheme: 'dark', reducedMotion: 'reduce' });
    await page.locator('html.pf-v6-theme-dark').waitFor();
    await everyScreen(() => axe(page));
  }],
  ['no heading is cut, at any width', async () => {
    for (const width of [1600, 1280, 1200, 1000, 780, 320]) {
      await page.setViewportSize({ width, height: 900 });
      await everyScreen(async () => (await cutHeadings()).map((fault) => `at ${String(width)} pixels ${fault}`));
    }
  }],
  ['320 pixels are wide enough', async () => {
    await page.setViewportSize({ width: 320, height: 700 });
    await page.reload();
    await settled(page);
    await everyScreen(noWider);
    await everyScreen(() => axe(page));
  }],
];

const good = await run(steps, page, complaints);
await browser.close();
process.exitCode = good ? 0 : 1;
