// A new machine: the form, the manifest beside it, and the server's faults at the fields.
import { Suspense, useEffect, useMemo, useRef, useState, type ReactElement } from 'react';
import { stringify } from 'yaml';
import { Alert, Button, CodeBlock, CodeBlockCode, Content, PageSection } from '@patternfly/react-core';
import { post } from '../kube/client';
import { asFailure, type Failure } from '../kube/failure';
import { collection, kinds, withQuery } from '../kube/paths';
import type { KubeObject } from '../kube/types';
import { useRights } from '../kube/userights';
import { parseManifest } from '../machine/manifest';
import { Act, denied, FailureAlert, Foreign, Loading } from '../parts/basics';
import { lazily } from '../parts/lazily';
import { PageTitle } from '../shell/frame';
import { useNotify } from '../shell/notify';
import { goTo } from '../shell/useroute';
import { shown } from '../text/shown';
import { t } from '../text/en';
import { clearDraft, readDraft, writeDraft } from './draft';
import { allFaults, faultsOf, type Fault } from './faults';
import { FormFields } from './fields';
import { manifestOf, type Form, type Manifest } from './form';

const c = t.create;
const Editor = lazily(() => import('../parts/editor'));

async function send(manifest: KubeObject | Manifest, namespace: string, dryRun: boolean): Promise<KubeObject> {
  const query = { fieldValidation: 'Strict', dryRun: dryRun ? 'All' : undefined };
  return post<KubeObject>(withQuery(collection(kinds.vm, namespace), query), manifest);
}

// A dry run resolves to the failure whose faults belong at the fields; any other failure is thrown.
async function dryRun(manifest: Manifest): Promise<Failure | undefined> {
  try {
    await send(manifest, manifest.metadata.namespace, true);
    return undefined;
  } catch (error) {
    const failure = asFailure(error);
    if (failure.code === 422 || failure.code === 400 || failure.code === 409) return failure;
    throw failure;
  }
}

type Outcome = { kind: 'accepted' } | { kind: 'faults'; faults: Fault[] } | { kind: 'failed'; error: unknown } | undefined;

function Told({ outcome }: { outcome: Outcome }): ReactElement | null {
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (outcome && outcome.kind !== 'accepted') place.current?.focus();
  }, [outcome]);
  if (!outcome) return null;
  if (outcome.kind === 'accepted') return <Alert isInline isLiveRegion variant="success" title={c.accepted} component="h2" />;
  if (outcome.kind === 'failed') return <div ref={place} tabIndex={-1}><FailureAlert error={outcome.error} /></div>;
  const elsewhere = outcome.faults.filter((f) => f.field === undefined);
  return (
    <div ref={place} tabIndex={-1}>
      <Alert isInline variant="danger" title={c.faults(outcome.faults.length)} component="h2">
        <ul>
          {outcome.faults.filter((f) => f.field !== undefined).map((f) => (
            <li key={f.path + f.message}><a href={`#${f.field ?? ''}`} onClick={(event) => {
              event.preventDefault();
              document.getElementById(`create-${f.field ?? ''}`)?.focus();
            }}>{f.field && c.field(f.field)}</a>: <Foreign text={f.message} /></li>
          ))}
        </ul>
        {elsewhere.length > 0 && (
          <>
            <p>{c.elsewhere}:</p>
            <ul>{elsewhere.map((f) => <li key={f.path + f.message}><code><Foreign text={f.path} /></code> <Foreign text={f.message} most={2000} /></li>)}</ul>
          </>
        )}
      </Alert>
    </div>
  );
}

function useDraft(namespace: string): [Form, (form: Form) => void] {
  const [form, setForm] = useState<Form>(() => readDraft(namespace));
  const set = (next: Form): void => {
    setForm(next);
    writeDraft(next);
  };
  return [form, set];
}

interface ManifestProps {
  yaml: string;
  edited: string | undefined;
  setEdited: (text: string | undefined) => void;
}

function ManifestView({ yaml, edited, setEdited }: ManifestProps): ReactElement {
  if (edited !== undefined) {
    return (
      <Suspense fallback={<Loading />}>
        <Editor label={c.manifest} text={yaml} onChange={setEdited} />
      </Suspense>
    );
  }
  return (
    <section aria-label={c.manifest} className="dd-manifest">
      <CodeBlock><CodeBlockCode>{shown(yaml, 20_000)}</CodeBlockCode></CodeBlock>
    </section>
  );
}

// Faults of an edited manifest belong to no field.
async function checkText(text: string): Promise<{ object?: KubeObject; faults: Fault[] }> {
  const parsed = parseManifest(text, t.yaml);
  if ('error' in parsed) return { faults: [{ field: undefined, path: '', message: parsed.error }] };
  const manifest = parsed.object as unknown as Manifest;
  const failure = await dryRun(manifest);
  const faults = failure ? faultsOf(failure, readDraft('')).map((f) => ({ ...f, field: undefined })) : [];
  return { object: parsed.object, faults };
}

export function CreatePage({ namespace }: { namespace: string }): ReactElement {
  const [form, setForm] = useDraft(namespace);
  const [edited, setEdited] = useState<string>();
  const [outcome, setOutcome] = useState<Outcome>();
  const [busy, setBusy] = useState('');
  const notify = useNotify();
  const may = useRights(form.namespace);
  const reason = denied(may, { verb: 'create', group: 'kubevirt.io', resource: 'virtualmachines' });
  const manifest = useMemo(() => manifestOf(form), [form]);
  const yaml = useMemo(() => stringify(manifest, { lineWidth: 0 }), [manifest]);
  const change = (next: Form): void => {
    setForm(next);
    setOutcome(undefined);
  };
  const go = async (create: boolean): Promise<void> => {
    if (busy !== '' || reason !== '') return;
    setBusy(create ? 'create' : 'check');
    setOutcome(undefined);
    try {
      const { object, faults } = edited === undefined ? { object: manifest, faults: await allFaults(form, (what) => c.unreadable[what], dryRun) } : await checkText(edited);
      if (faults.length > 0 || !object) {
        setOutcome({ kind: 'faults', faults });
      } else if (!create) {
        setOutcome({ kind: 'accepted' });
      } else {
        const made = await send(object, object.metadata.namespace ?? form.namespace, false);
        clearDraft();
        notify.done(c.created(shown(made.metadata.name, 80)));
        goTo({ page: 'machine', namespace: made.metadata.namespace ?? form.namespace, name: made.metadata.name, tab: 'overview' });
      }
    } catch (error) {
      setOutcome({ kind: 'failed', error });
    } finally {
      setBusy('');
    }
  };
  const faults = outcome?.kind === 'faults' ? outcome.faults : [];
  return (
    <PageSection hasBodyWrapper={false}>
      <PageTitle title={c.title} />
      <Content component="p">{c.intro} {c.unsavedNote}</Content>
      <Told outcome={outcome} />
      <div className="dd-columns">
        <div className="dd-stack">
          {edited !== undefined && <Alert isInline variant="info" title={c.edited} component="h2" />}
          <FormFields form={form} faults={faults} disabled={edited !== undefined} change={change} submit={() => void go(true)} />
          <div className="dd-actions">
            <Act variant="primary" reason={reason} busy={busy === 'create'} onClick={() => void go(true)}>{c.create}</Act>
            <Act reason={reason} busy={busy === 'check'} onClick={() => void go(false)}>{c.check}</Act>
          </div>
        </div>
        <div className="dd-stack dd-top">
          <div className="dd-tools">
            <Content component="h2">{c.manifest}</Content>
            <Button variant="link" isInline onClick={() => {
              setEdited(edited === undefined ? yaml : undefined);
              setOutcome(undefined);
            }}>{edited === undefined ? c.editManifest : c.backToForm}</Button>
          </div>
          <small>{edited === undefined ? c.manifestText : c.backText}</small>
          <ManifestView yaml={yaml} edited={edited} setEdited={setEdited} />
        </div>
      </div>
    </PageSection>
  );
}
