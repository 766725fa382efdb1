// A small picture of a guest's screen, taken again while it can be seen.
import { useEffect, useRef, useState, type ReactElement } from 'react';
import { requestBytes } from '../kube/client';
import { kinds, subresource, subresourceGroup } from '../kube/paths';
import type { Wish } from '../kube/rights';
import type { VMI } from '../kube/types';
import { useRights, type May } from '../kube/userights';
import { shown } from '../text/shown';
import { t } from '../text/en';
import { Turns } from './turns';

const turns = new Turns({
  now: Date.now,
  later: (run, milliseconds) => {
    const timer = setTimeout(run, milliseconds);
    return () => {
      clearTimeout(timer);
    };
  },
});

// A hidden tab asks nothing.
export function followPictures(page: Document): void {
  page.addEventListener('visibilitychange', () => {
    turns.sleep(page.visibilityState !== 'visible');
  });
}

const pictureRight: Wish = { verb: 'get', group: subresourceGroup, resource: 'virtualmachineinstances/vnc/screenshot' };

// hasPicture reports whether a guest runs and has a screen that the user may see.
export function hasPicture(vmi: VMI | undefined, may: May): vmi is VMI {
  return vmi?.status?.phase === 'Running' && vmi.spec.domain?.devices?.autoattachGraphicsDevice !== false && may(pictureRight) === 'yes';
}

// Bytes of a picture: a screen of 4K without compression has less.
const most = 40 * 2 ** 20;

// The picture is drawn small, so that a large screen costs memory only for a moment.
async function draw(namespace: string, name: string, canvas: HTMLCanvasElement, signal: AbortSignal): Promise<void> {
  const blob = await requestBytes(subresource(kinds.vmi, namespace, name, 'vnc/screenshot'), most, signal);
  const whole = await createImageBitmap(blob);
  try {
    const scale = Math.min(1, canvas.clientWidth * devicePixelRatio / whole.width) || 1;
    canvas.width = Math.max(1, Math.round(whole.width * scale));
    canvas.height = Math.max(1, Math.round(whole.height * scale));
    const context = canvas.getContext('2d');
    if (!context) throw new Error('the browser draws no pictures');
    context.imageSmoothingQuality = 'high';
    context.drawImage(whole, 0, 0, canvas.width, canvas.height);
  } finally {
    whole.close();
  }
}

function Canvas({ namespace, name }: { namespace: string; name: string }): ReactElement {
  const place = useRef<HTMLCanvasElement>(null);
  const [drawn, setDrawn] = useState(false);
  useEffect(() => {
    const canvas = place.current;
    if (!canvas) return undefined;
    let remove: (() => void) | undefined;
    const hide = (): void => {
      remove?.();
      remove = undefined;
    };
    const watcher = new IntersectionObserver((entries) => {
      if (!entries.at(-1)?.isIntersecting) {
        hide();
        return;
      }
      remove ??= turns.add(async (signal) => {
        await draw(namespace, name, canvas, signal);
        setDrawn(true);
      });
    });
    watcher.observe(canvas);
    return () => {
      watcher.disconnect();
      hide();
    };
  }, [namespace, name]);
  return (
    <span role="img" className="dd-picture" aria-label={drawn ? t.pictures.of(shown(name, 80)) : t.pictures.notYet(shown(name, 80))}>
      <canvas ref={place} width={160} height={100} />
    </span>
  );
}

export function Picture({ vmi }: { vmi: VMI | undefined }): ReactElement | null {
  const namespace = vmi?.metadata.namespace ?? '';
  const may = useRights(namespace);
  if (!hasPicture(vmi, may)) return null;
  return <Canvas key={vmi.metadata.uid} namespace={namespace} name={vmi.metadata.name} />;
}
