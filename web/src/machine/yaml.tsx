// The manifest of a machine: edited, checked by the server, and saved.
import { Suspense, useState, type ReactElement } from 'react';
import { Alert, Button } from '@patternfly/react-core';
import { put } from '../kube/client';
import { kinds, single, withQuery } from '../kube/paths';
import type { KubeObject } from '../kube/types';
import { useRights } from '../kube/userights';
import { Act, denied, FailureAlert, Foreign, Loading } from '../parts/basics';
import { lazily } from '../parts/lazily';
import { useNotify } from '../shell/notify';
import { shown } from '../text/shown';
import { t } from '../text/en';
import { editable, isSame, parseManifest } from './manifest';
import type { Machine } from './page';

const Editor = lazily(() => import('../parts/editor'));

type Outcome = { kind: 'accepted' } | { kind: 'fault'; message: string } | { kind: 'refused'; error: unknown } | undefined;

function Told({ outcome }: { outcome: Outcome }): ReactElement | null {
  switch (outcome?.kind) {
    case undefined: return null;
    case 'accepted': return <Alert isInline isLiveRegion variant="success" title={t.yaml.checked} component="h2" />;
    case 'fault': return <Alert isInline isLiveRegion variant="danger" title={<Foreign text={outcome.message} />} component="h2" />;
    case 'refused': return <FailureAlert title={t.yaml.faults} error={outcome.error} />;
  }
}

interface EditProps {
  machine: Machine;
  object: KubeObject;
  // the version on the server
  live: string | undefined;
  // Shows the object of the page, or the one that was just saved.
  reload: (saved?: KubeObject) => void;
}

function Edit({ machine, object, live, reload }: EditProps): ReactElement {
  // The text is that of the object when it was loaded; later versions don't replace what is being typed.
  const [loaded] = useState(() => ({ text: editable(object), version: object.metadata.resourceVersion }));
  const [text, setText] = useState(loaded.text);
  const [outcome, setOutcome] = useState<Outcome>();
  const [busy, setBusy] = useState('');
  const may = useRights(machine.namespace);
  const notify = useNotify();
  const kind = machine.vm ? kinds.vm : kinds.vmi;
  const missing = denied(may, { verb: 'update', group: kind.group, resource: kind.resource });
  const reason = missing !== '' ? missing : text === loaded.text ? t.yaml.unchanged : '';
  const send = async (dryRun: boolean): Promise<boolean> => {
    const parsed = parseManifest(text, t.yaml);
    if ('error' in parsed) {
      setOutcome({ kind: 'fault', message: parsed.error });
      return false;
    }
    const identity = { kind: machine.vm ? 'VirtualMachine' : 'VirtualMachineInstance', name: machine.name, namespace: machine.namespace };
    if (!isSame(parsed.object, identity)) {
      setOutcome({ kind: 'fault', message: t.yaml.identity });
      return false;
    }
    setBusy(dryRun ? 'check' : 'save');
    try {
      const query = { fieldValidation: 'Strict', dryRun: dryRun ? 'All' : undefined };
      const saved = await put<KubeObject>(withQuery(single(kind, machine.namespace, machine.name), query), parsed.object);
      setOutcome({ kind: 'accepted' });
      if (!dryRun) {
        notify.done(`${t.yaml.saved}: ${shown(machine.name, 80)}`);
        reload(saved);
      }
      return true;
    } catch (error) {
      setOutcome({ kind: 'refused', error });
      return false;
    } finally {
      setBusy('');
    }
  };
  const save = async (): Promise<void> => {
    if (await send(true)) await send(false);
  };
  return (
    <section aria-label={t.yaml.label} className="dd-stack">
      <div className="dd-tools">
        <Act reason={reason} busy={busy === 'check'} onClick={() => void send(true)}>{t.yaml.check}</Act>
        <Act reason={reason} busy={busy === 'save'} variant="primary" onClick={() => void save()}>{t.yaml.save}</Act>
        <Button variant="link" onClick={() => {
          reload();
        }}>{t.yaml.revert}</Button>
        <small>{t.yaml.hint}</small>
      </div>
      {live !== loaded.version && <Alert isInline variant="warning" title={t.yaml.changed} component="h2" />}
      <Told outcome={outcome} />
      <Suspense fallback={<Loading />}>
        <Editor label={t.yaml.label} text={loaded.text} onChange={(value) => {
          setText(value);
          setOutcome(undefined);
        }} />
      </Suspense>
    </section>
  );
}

export function YamlTab({ machine }: { machine: Machine }): ReactElement {
  const [base, setBase] = useState<{ generation: number; saved?: KubeObject }>({ generation: 0 });
  const [kind, live] = machine.vm ? ['VirtualMachine', machine.vm] : ['VirtualMachineInstance', machine.vmi];
  const object = base.saved ?? live;
  if (!object || !live) return <Loading />;
  return (
    <Edit
      key={base.generation} machine={machine} object={{ apiVersion: 'kubevirt.io/v1', kind, ...object }} live={live.metadata.resourceVersion}
      reload={(saved) => {
        setBase({ generation: base.generation + 1, saved });
      }}
    />
  );
}
