// The form for the import of an image into a new DataVolume.
import { useState, type ReactElement } from 'react';
import { Alert, Button, Form, FormSelect, FormSelectOption, Modal, ModalBody, ModalFooter, ModalHeader, TextInput } from '@patternfly/react-core';
import { post } from '../kube/client';
import { asFailure, type Failure } from '../kube/failure';
import { useList } from '../kube/lists';
import { collection, kinds, withQuery } from '../kube/paths';
import type { KubeObject } from '../kube/types';
import { FailureAlert, Foreign } from '../parts/basics';
import { Field, fieldProps } from '../parts/field';
import { NamespaceChoice } from '../parts/namespaces';
import { useNotify } from '../shell/notify';
import { shown } from '../text/shown';
import { t } from '../text/en';
import { emptyImport, importFaults, importOf, type ImportFault, type ImportField, type ImportForm, type ImportManifest } from './imports';

const i = t.imports;

async function send(manifest: ImportManifest, dryRun: boolean): Promise<void> {
  const query = { fieldValidation: 'Strict', dryRun: dryRun ? 'All' : undefined };
  await post<KubeObject>(withQuery(collection(kinds.dataVolume, manifest.metadata.namespace), query), manifest);
}

// A failure whose faults belong at the fields; any other is thrown.
async function dryRun(manifest: ImportManifest): Promise<Failure | undefined> {
  try {
    await send(manifest, true);
    return undefined;
  } catch (error) {
    const failure = asFailure(error);
    if (failure.code === 422 || failure.code === 400 || failure.code === 409) return failure;
    throw failure;
  }
}

const idOf = (field: ImportField): string => `import-${field}`;

interface FieldsProps {
  form: ImportForm;
  faults: readonly ImportFault[];
  change: (form: ImportForm) => void;
}

function Fields({ form, faults, change }: FieldsProps): ReactElement {
  const classes = useList(kinds.storageClass);
  const of = (field: ImportField): string[] => faults.filter((f) => f.field === field).map((f) => f.message);
  const text = (field: 'name' | 'url' | 'size'): ReactElement => (
    <Field id={idOf(field)} label={i.field[field]} faults={of(field)} help={i.help[field]} required>
      <TextInput
        {...fieldProps(idOf(field), of(field).length > 0)} value={form[field]} autoComplete="off" spellCheck={false} isRequired
        onChange={(_e, value) => {
          change({ ...form, [field]: value });
        }}
      />
    </Field>
  );
  return (
    <>
      {text('name')}
      <Field id={idOf('namespace')} label={i.field.namespace} faults={of('namespace')} required>
        <NamespaceChoice id={idOf('namespace')} all={false} value={form.namespace} invalid={of('namespace').length > 0} onChange={(namespace) => {
          change({ ...form, namespace });
        }} />
      </Field>
      {text('url')}
      {text('size')}
      <Field id={idOf('storageClass')} label={i.field.storageClass} faults={of('storageClass')}>
        <FormSelect {...fieldProps(idOf('storageClass'), of('storageClass').length > 0)} value={form.storageClass} onChange={(_e, storageClass) => {
          change({ ...form, storageClass });
        }}>
          <FormSelectOption value="" label={t.create.defaultClass} />
          {[...classes.byKey.values()].map((c) => <FormSelectOption key={c.metadata.name} value={c.metadata.name} label={shown(c.metadata.name, 120)} />)}
        </FormSelect>
      </Field>
    </>
  );
}

function useImport(namespace: string, close: () => void): {
  form: ImportForm; faults: readonly ImportFault[]; error: unknown; busy: boolean; change: (form: ImportForm) => void; go: () => Promise<void>;
} {
  const [form, setForm] = useState(() => emptyImport(namespace));
  const [faults, setFaults] = useState<readonly ImportFault[]>([]);
  const [error, setError] = useState<unknown>();
  const [busy, setBusy] = useState(false);
  const notify = useNotify();
  const go = async (): Promise<void> => {
    if (busy) return;
    setBusy(true);
    setError(undefined);
    try {
      const all = await importFaults(form, (gap) => t.create.unreadable[gap], dryRun);
      setFaults(all);
      if (all.length === 0) {
        await send(importOf(form), false);
        notify.done(i.begun(shown(form.name, 80)));
        close();
        return;
      }
      document.getElementById(idOf(all.find((f) => f.field !== undefined)?.field ?? 'name'))?.focus();
    } catch (failure) {
      setError(failure);
    }
    setBusy(false);
  };
  const change = (next: ImportForm): void => {
    setForm(next);
    setFaults([]);
  };
  return { form, faults, error, busy, change, go };
}

export function ImportDialog({ namespace, close }: { namespace: string; close: () => void }): ReactElement {
  const { form, faults, error, busy, change, go } = useImport(namespace, close);
  const elsewhere = faults.filter((f) => f.field === undefined);
  return (
    <Modal isOpen variant="medium" onClose={close} aria-label={i.title}>
      <ModalHeader title={i.title} description={i.text} />
      <ModalBody>
        <div className="dd-stack">
          {error !== undefined && <FailureAlert error={error} />}
          {faults.length > 0 && (
            <Alert isInline isLiveRegion variant="danger" title={t.create.faults(faults.length)} component="p">
              {elsewhere.map((f) => <p key={f.message}><Foreign text={f.message} most={2000} /></p>)}
            </Alert>
          )}
          <Form onSubmit={(event) => {
            event.preventDefault();
            void go();
          }}>
            <button type="submit" hidden />
            <Fields form={form} faults={faults} change={change} />
          </Form>
        </div>
      </ModalBody>
      <ModalFooter>
        <Button isAriaDisabled={busy} isLoading={busy} spinnerAriaLabel={t.loading} onClick={() => void go()}>{i.begin}</Button>
        <Button variant="link" onClick={close}>{t.cancel}</Button>
      </ModalFooter>
    </Modal>
  );
}
