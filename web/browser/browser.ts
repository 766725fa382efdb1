// The browser, the steps of a walk, and the questions that every step asks.
import { mkdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { chromium, type Browser, type Page } from 'playwright-core';

const axeSource = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const tags = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];

export async function launch(): Promise<Browser> {
  return chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });
}

interface AxeResult {
  violations: { id: string; help: string; nodes: { html: string }[] }[];
}

// axe is injected by the debugger: the page's policy forbids scripts that are not its own.
export async function axe(page: Page): Promise<string[]> {
  const debug = await page.context().newCDPSession(page);
  await debug.send('Runtime.evaluate', { expression: axeSource });
  const options = JSON.stringify({ runOnly: tags });
  const { result } = await debug.send('Runtime.evaluate', {
    expression: `axe.run(document, ${options}).then((r) => JSON.stringify({ violations: r.violations }))`, awaitPromise: true,
  });
  await debug.detach();
  const { violations } = JSON.parse(String(result.value)) as AxeResult;
  return violations.map((v) => `${v.id}: ${v.help}: ${v.nodes.map((n) => n.html.slice(0, 200)).join(' | ')}`);
}

export function assert(condition: boolean, message: string): asserts condition {
  if (!condition) throw new Error(message);
}

export async function until(what: string, test: () => Promise<boolean>, seconds = 60): Promise<void> {
  const end = Date.now() + seconds * 1000;
  while (!(await test())) {
    if (Date.now() > end) throw new Error(`${what}: not within ${String(seconds)} seconds`);
    await new Promise((done) => setTimeout(done, 200));
  }
}

// What a page must never do is collected while it runs.
export function watchPage(page: Page, complaints: string[]): void {
  page.on('pageerror', (error) => complaints.push(`exception: ${error.message}`));
  page.on('console', (message) => {
    // A refused request is reported there, too; the steps judge those by what the page shows.
    if (message.type() === 'error' && !message.text().startsWith('Failed to load resource')) complaints.push(message.text());
  });
}

export type Step = [name: string, run: () => Promise<void>];

// run prints the closing line that continuous integration reads.
export async function run(steps: readonly Step[], page: Page, complaints: string[]): Promise<boolean> {
  const shots = process.env.DRYDOCK_WEB_SHOTS ?? '';
  if (shots !== '') mkdirSync(shots, { recursive: true });
  let passed = 0;
  for (const [name, step] of steps) {
    const begin = Date.now();
    try {
      await step();
      assert(complaints.length === 0, `the browser complains: ${complaints.join('\n')}`);
    } catch (error) {
      console.log(`FAILED ${name}: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`);
      console.log((await page.locator('body').innerText().catch(() => '')).slice(0, 3000));
      if (shots !== '') await page.screenshot({ path: join(shots, 'failed.png') });
      console.log(`${String(passed)} passed, 1 failed, ${String(steps.length - passed - 1)} skipped`);
      return false;
    }
    passed++;
    console.log(`ok ${name} (${((Date.now() - begin) / 1000).toFixed(1)} s)`);
    if (shots !== '') await page.screenshot({ path: join(shots, `${String(passed).padStart(2, '0')}-${name.replace(/\W+/g, '-')}.png`) });
  }
  console.log(`${String(passed)} passed, 0 failed`);
  return true;
}
