// The frame of a console or screen: why there is none, or its state and tools.
import { useEffect, useRef, useState, useSyncExternalStore, type ReactElement, type ReactNode } from 'react';
import { Alert, AlertActionLink, EmptyState, EmptyStateBody } from '@patternfly/react-core';
import { isAssured, subscribeAssurance } from '../kube/client';
import type { Failure } from '../kube/failure';
import { Foreign } from '../parts/basics';
import { t } from '../text/en';
import type { Machine } from './page';
import { whyRefused, type StreamState } from './stream';

interface Props {
  machine: Machine;
  verb: 'console' | 'vnc';
  state: StreamState;
  // Why the user may not open it; '' if he may.
  missing: string;
  // Whether the machine lacks the device.
  without: boolean;
  texts: { label: string; hint: string; notRunning: string; noDevice: string; refused: string };
  tools: ReactNode;
  again: () => void;
  children: ReactNode;
}

// A stream that the other side ends, for example since the guest migrated, is opened again a few times by itself.
const tries = 5;

function useReopen(state: StreamState, again: () => void): void {
  const used = useRef(0);
  const latest = useRef(again);
  useEffect(() => {
    latest.current = again;
  });
  useEffect(() => {
    if (state === 'connected') {
      const calm = setTimeout(() => {
        used.current = 0;
      }, 10_000);
      return () => {
        clearTimeout(calm);
      };
    }
    if (state === 'connecting' || used.current >= tries || document.visibilityState === 'hidden') return undefined;
    const timer = setTimeout(() => {
      latest.current();
    }, 1000 * 2 ** used.current++);
    return () => {
      clearTimeout(timer);
    };
  }, [state]);
}

function Refused({ machine, verb, title, again }: Pick<Props, 'machine' | 'verb' | 'again'> & { title: string }): ReactElement {
  const [why, setWhy] = useState<Failure>();
  const { namespace, name } = machine;
  useEffect(() => {
    let live = true;
    void whyRefused(namespace, name, verb).then((failure) => {
      if (live) setWhy(failure);
    });
    return () => {
      live = false;
    };
  }, [namespace, name, verb]);
  return (
    <Alert
      isInline variant="warning" title={title} component="h2"
      actionLinks={<AlertActionLink onClick={again}>{t.console.reconnect}</AlertActionLink>}
    >
      {why && <Foreign text={why.message} />}
    </Alert>
  );
}

export function StreamFrame({ machine, verb, state, missing, without, texts, tools, again, children }: Props): ReactElement {
  useReopen(state, again);
  const runs = machine.vmi?.status?.phase === 'Running';
  // Keys go to the guest by the page's own server, or not at all.
  const sure = useSyncExternalStore(subscribeAssurance, isAssured);
  const why = !sure ? t.failure.unreachableTitle : missing !== '' ? missing : !runs ? texts.notRunning : without ? texts.noDevice : '';
  if (why !== '') {
    return <EmptyState titleText={texts.label} headingLevel="h2"><EmptyStateBody>{why}</EmptyStateBody></EmptyState>;
  }
  return (
    <section aria-label={texts.label} className="dd-stack">
      <div className="dd-tools">
        <span role="status">{state === 'connected' ? t.console.connected : state === 'connecting' ? t.console.connecting : t.console.ended}</span>
        {tools}
        <small>{texts.hint}</small>
      </div>
      {state === 'refused' && <Refused machine={machine} verb={verb} title={texts.refused} again={again} />}
      {children}
    </section>
  );
}
