// Small parts that every page uses.
import { useEffect, useState, type ReactElement, type ReactNode } from 'react';
import { Alert, AlertActionLink, Button, Label, Spinner, Tooltip } from '@patternfly/react-core';
import { asFailure, unreachable } from '../kube/failure';
import type { Items } from '../kube/items';
import type { KubeObject } from '../kube/types';
import type { May } from '../kube/userights';
import { wishText, type Wish } from '../kube/rights';
import { toneOf, type Tone } from '../machine/state';
import { shown } from '../text/shown';
import { t } from '../text/en';

// Foreign shows text from the cluster: isolated from the direction and the language of the page.
export function Foreign({ text, most }: { text: unknown; most?: number }): ReactElement {
  return <bdi translate="no">{shown(text, most)}</bdi>;
}

const labelStatus: Record<Tone, 'success' | 'info' | 'warning' | 'danger' | undefined> = {
  good: 'success', busy: 'info', idle: undefined, warning: 'warning', bad: 'danger',
};

export function ToneLabel({ tone, text }: { tone: Tone; text: string }): ReactElement {
  const status = labelStatus[tone];
  return status ? <Label isCompact status={status}>{shown(text, 60)}</Label> : <Label isCompact>{shown(text, 60)}</Label>;
}

export function StatusLabel({ status }: { status: string }): ReactElement {
  return <ToneLabel tone={toneOf(status)} text={status === '' ? t.noStatus : t.status(status)} />;
}

export function FailureAlert({ error, title, children }: { error: unknown; title?: string; children?: ReactNode }): ReactElement {
  const failure = asFailure(error);
  const away = failure.code === unreachable || (failure.code >= 502 && failure.code <= 504);
  const fallback = away ? t.failure.unreachableTitle : t.failure.title;
  return (
    <Alert isInline variant="danger" title={title ?? fallback} component="p">
      <p><Foreign text={failure.message} most={2000} /></p>
      {failure.causes.length > 1 && (
        <ul>
          {failure.causes.slice(0, 50).map((c, i) => (
            <li key={i}><code><Foreign text={c.field} /></code> <Foreign text={c.message} /></li>
          ))}
        </ul>
      )}
      <p>{t.failure.advice(failure.code, failure.reason)}</p>
      {children}
    </Alert>
  );
}

// ListAlert says why a list can't be read, and whether its old content is shown.
export function ListAlert({ list, of }: { list: Items<KubeObject> & { retry: () => void }; of: string }): ReactElement | null {
  if (!list.failure) return null;
  return (
    <Alert
      isInline variant={list.complete ? 'warning' : 'danger'} title={t.failure.listTitle(of)} component="p"
      actionLinks={<AlertActionLink onClick={list.retry}>{t.retry}</AlertActionLink>}
    >
      <p><Foreign text={list.failure.message} /></p>
      <p>{t.failure.advice(list.failure.code, list.failure.reason)} {list.complete && t.failure.stale}</p>
    </Alert>
  );
}

export function Loading(): ReactElement {
  return <Spinner aria-label={t.loading} size="lg" />;
}

// denied returns why the user may not do something, '' if he may.
export function denied(may: May, wish: Wish): string {
  const answer = may(wish);
  if (answer === 'no') return t.rights.missing(wishText(wish));
  return '';
}

interface ActProps {
  // Why the button can't be used; '' if it can.
  reason: string;
  onClick: () => void;
  children: ReactNode;
  variant?: 'primary' | 'secondary' | 'danger' | 'link' | 'tertiary' | 'plain';
  busy?: boolean;
  small?: boolean;
  label?: string;
}

// Act is a button that stays visible and reachable when it can't be used, and says why.
export function Act({ reason, onClick, children, variant = 'secondary', busy = false, small = false, label }: ActProps): ReactElement {
  const button = (
    <Button
      variant={variant} isAriaDisabled={reason !== '' || busy} isLoading={busy} size={small ? 'sm' : undefined}
      spinnerAriaLabel={t.loading} aria-label={label} onClick={onClick}
    >
      {children}
    </Button>
  );
  return reason === '' ? button : <Tooltip content={reason}>{button}</Tooltip>;
}

export function ageText(from: string | undefined, now: number): string {
  const at = Date.parse(from ?? '');
  if (Number.isNaN(at)) return '';
  const minutes = Math.floor((now - at) / 60_000);
  if (minutes < 1) return t.age.now;
  if (minutes < 60) return t.age.minutes(minutes);
  if (minutes < 60 * 48) return t.age.hours(Math.floor(minutes / 60));
  return t.age.days(Math.floor(minutes / 60 / 24));
}

export function Age({ of }: { of: string | undefined }): ReactElement | null {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    const timer = setInterval(() => {
      if (document.visibilityState === 'visible') setNow(Date.now());
    }, 30_000);
    return () => {
      clearInterval(timer);
    };
  }, []);
  const text = ageText(of, now);
  return text === '' ? null : <time dateTime={shown(of, 40)} title={new Date(of ?? '').toLocaleString()}>{text}</time>;
}
