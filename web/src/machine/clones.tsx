// Clones of a machine and of its snapshots.
import { useState, type ReactElement } from 'react';
import { Content, Form, FormGroup, TextInput } from '@patternfly/react-core';
import { post } from '../kube/client';
import { collection, kinds } from '../kube/paths';
import type { Clone } from '../kube/types';
import { Age, Foreign, ToneLabel } from '../parts/basics';
import { Confirm } from '../parts/confirm';
import { PlainTable } from '../parts/tables';
import { useNotify } from '../shell/notify';
import { machineRoute } from '../shell/route';
import { goTo } from '../shell/useroute';
import { shown } from '../text/shown';
import { t } from '../text/en';
import { cloneName, cloneOf, cloneSays, cloneState, cloneTone, type CloneSource } from './cloning';

const c = t.clones;

interface Props {
  namespace: string;
  source: CloneSource;
  runs: boolean;
  close: () => void;
}

export function CloneDialog({ namespace, source, runs, close }: Props): ReactElement {
  const [name, setName] = useState(() => cloneName(source.name));
  const notify = useNotify();
  const run = async (): Promise<void> => {
    await post(collection(kinds.clone, namespace), cloneOf(source, name.trim()));
    notify.done(t.asked('clone', shown(name, 80)));
    if (source.kind === 'VirtualMachine') goTo({ page: 'machine', namespace, name: source.name, tab: 'snapshots' });
  };
  return (
    <Confirm title={c.title(shown(source.name, 80))} action={c.clone} blocked={name.trim() === ''} run={run} close={close}>
      <p>{source.kind === 'VirtualMachine' ? c.textMachine : c.textSnapshot}</p>
      {runs && <p>{c.textRuns}</p>}
      <Form onSubmit={(e) => {
        e.preventDefault();
      }}>
        <FormGroup label={c.name} fieldId="clone-name">
          <TextInput id="clone-name" value={name} autoComplete="off" onChange={(_e, value) => {
            setName(value);
          }} />
        </FormGroup>
      </Form>
    </Confirm>
  );
}

export function CloneTable({ clones }: { clones: readonly Clone[] }): ReactElement | null {
  if (clones.length === 0) return null;
  return (
    <section>
      <Content component="h2">{c.heading}</Content>
      <PlainTable
        label={c.heading} narrow={[c.state, c.made]} heads={[c.machine, c.from, c.state, c.says, c.made]}
        rows={clones.map((x) => {
          const target = x.status?.targetName ?? x.spec.target?.name ?? '';
          return {
            key: x.metadata.name,
            cells: [
              cloneState(x) === 'done' && target !== ''
                ? <a key="t" href={machineRoute(x.metadata.namespace ?? '', target)}><Foreign text={target} /></a>
                : <Foreign key="t" text={target} />,
              <Foreign key="f" text={x.spec.source?.name} />, <ToneLabel key="s" tone={cloneTone(x)} text={c.phase(x.status?.phase ?? '')} />,
              <Foreign key="m" text={cloneSays(x)} most={1000} />, <Age key="a" of={x.metadata.creationTimestamp} />,
            ],
          };
        })}
      />
    </section>
  );
}
