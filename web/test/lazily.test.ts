import assert from 'node:assert/strict';
import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';
import { createElement, Suspense, type ComponentType } from 'react';
import { renderToPipeableStream } from 'react-dom/server';
import { forgetFailures, lazily } from '../src/parts/lazily';

// Returns the text of a component, or the message of its failure.
function drawn(part: ComponentType<object>): Promise<string> {
  return new Promise((resolve, reject) => {
    let failure = '';
    const stream = renderToPipeableStream(createElement(Suspense, { fallback: 'waits' }, createElement(part)), {
      onError: (error) => {
        failure = error instanceof Error ? error.message : String(error);
      },
      onAllReady: () => {
        text(stream.pipe(new PassThrough())).then((html) => {
          resolve(failure === '' ? html.replace(/<[^>]*>/g, '') : failure);
        }, reject);
      },
    });
  });
}

const ready = (): Promise<void> => Promise.resolve();

test('a part that could not be loaded is loaded again when its failure is forgotten', async () => {
  let loads = 0;
  const part = lazily(() => {
    loads++;
    return loads === 1 ? Promise.reject(new Error('the network is gone')) : Promise.resolve({ default: () => createElement('p', null, 'drawn') });
  }, ready);
  assert.equal(await drawn(part), 'the network is gone');
  assert.equal(await drawn(part), 'the network is gone');
  assert.equal(loads, 1);
  forgetFailures();
  assert.equal(await drawn(part), 'drawn');
  forgetFailures();
  assert.equal(await drawn(part), 'drawn');
  assert.equal(loads, 2);
});

test('nothing is loaded from a server that is not the page’s own', async () => {
  let loads = 0;
  const part = lazily(() => {
    loads++;
    return Promise.resolve({ default: () => null });
  }, () => Promise.reject(new Error('another program answers')));
  assert.equal(await drawn(part), 'another program answers');
  assert.equal(loads, 0);
});
