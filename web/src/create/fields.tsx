// The fields of the form. Each has the faults that the server found in its part of the manifest.
import type { ReactElement, ReactNode } from 'react';
import {
  Checkbox, Form as PFForm, FormSection, FormSelect, FormSelectOption, TextArea, TextInput,
} from '@patternfly/react-core';
import { useList } from '../kube/lists';
import { kinds, type Kind } from '../kube/paths';
import { memoryText } from '../kube/quantity';
import type { InstanceType, KubeObject } from '../kube/types';
import { Field as PartField, fieldProps } from '../parts/field';
import { NamespaceChoice } from '../parts/namespaces';
import { shown } from '../text/shown';
import { t } from '../text/en';
import type { Fault } from './faults';
import { keysAreLost, type DiskSource, type Field, type Form } from './form';

const c = t.create;

interface Props {
  form: Form;
  faults: readonly Fault[];
  disabled: boolean;
  change: (form: Form) => void;
  submit: () => void;
}

type FieldProps = Props & { field: Field };

const idOf = (field: Field): string => `create-${field}`;

function faultsAt(faults: readonly Fault[], field: Field): Fault[] {
  return faults.filter((f) => f.field === field);
}

function Group({ field, faults, help, required = false, children }: {
  field: Field; faults: readonly Fault[]; help?: string; required?: boolean; children: ReactNode;
}): ReactElement {
  return (
    <PartField id={idOf(field)} label={c.field(field)} faults={faultsAt(faults, field).map((f) => f.message)} help={help} required={required}>
      {children}
    </PartField>
  );
}

function common(props: FieldProps): ReturnType<typeof fieldProps> & { isDisabled: boolean } {
  return { ...fieldProps(idOf(props.field), faultsAt(props.faults, props.field).length > 0), isDisabled: props.disabled };
}

type TextField = Exclude<Field, 'start' | 'source'>;

function Text(props: FieldProps & { field: TextField; required?: boolean }): ReactElement {
  const { form, field, faults, change, required } = props;
  const help = c.help[field as keyof typeof c.help] as string | undefined;
  return (
    <Group field={field} faults={faults} help={help} required={required}>
      <TextInput {...common(props)} value={form[field]} autoComplete="off" spellCheck={false} isRequired={required} onChange={(_e, value) => {
        change({ ...form, [field]: value });
      }} />
    </Group>
  );
}

function Area(props: FieldProps & { field: TextField; rows: number; extra?: string }): ReactElement {
  const { form, field, faults, change, rows, extra } = props;
  const help = c.help[field as keyof typeof c.help] as string | undefined;
  return (
    <Group field={field} faults={faults} help={extra ?? help}>
      <TextArea {...common(props)} value={form[field]} rows={rows} spellCheck={false} resizeOrientation="vertical" onChange={(_e, value) => {
        change({ ...form, [field]: value });
      }} />
    </Group>
  );
}

interface Option {
  value: string;
  label: string;
}

function Choice(props: FieldProps & { options: readonly Option[] }): ReactElement {
  const { form, field, faults, change, options } = props;
  const value = String(form[field]);
  const all = options.some((o) => o.value === value) ? options : [...options, { value, label: shown(value, 120) }];
  return (
    <Group field={field} faults={faults}>
      <FormSelect {...common(props)} value={value} onChange={(_e, next) => {
        change({ ...form, [field]: next });
      }}>
        {all.map((o) => <FormSelectOption key={o.value} value={o.value} label={o.label} />)}
      </FormSelect>
    </Group>
  );
}

function useNames(kind: Kind, namespace: string): KubeObject[] {
  const list = useList(kind.namespaced && namespace === '' ? undefined : kind, kind.namespaced ? namespace : '');
  return [...list.byKey.values()].sort((a, b) => a.metadata.name.localeCompare(b.metadata.name));
}

function sizeText(of: InstanceType): string {
  const { cpu, memory } = of.spec ?? {};
  return cpu?.guest === undefined ? '' : ` – ${t.overview.cpuText(cpu.guest)}, ${memoryText(memory?.guest)}`;
}

function SizeChoice(props: Props): ReactElement {
  const own = useNames(kinds.instanceType, props.form.namespace);
  const shared = useNames(kinds.clusterInstanceType, '');
  const options = [
    { value: '', label: c.ownSize },
    ...own.map((i) => ({ value: `VirtualMachineInstancetype/${i.metadata.name}`, label: shown(i.metadata.name + sizeText(i as InstanceType), 120) })),
    ...shared.map((i) => ({
      value: `VirtualMachineClusterInstancetype/${i.metadata.name}`, label: `${shown(i.metadata.name + sizeText(i as InstanceType), 120)} ${c.cluster}`,
    })),
  ];
  return <Choice {...props} field="instanceType" options={options} />;
}

function PreferenceChoice(props: Props): ReactElement {
  const own = useNames(kinds.preference, props.form.namespace);
  const shared = useNames(kinds.clusterPreference, '');
  const options = [
    { value: '', label: c.noPreference },
    ...own.map((i) => ({ value: `VirtualMachinePreference/${i.metadata.name}`, label: shown(i.metadata.name, 120) })),
    ...shared.map((i) => ({ value: `VirtualMachineClusterPreference/${i.metadata.name}`, label: `${shown(i.metadata.name, 120)} ${c.cluster}` })),
  ];
  return <Choice {...props} field="preference" options={options} />;
}

function ClassChoice(props: Props): ReactElement {
  const classes = useNames(kinds.storageClass, '');
  const options = [{ value: '', label: c.defaultClass }, ...classes.map((s) => ({ value: s.metadata.name, label: shown(s.metadata.name, 120) }))];
  return <Choice {...props} field="storageClass" options={options} />;
}

function ClaimChoice(props: Props): ReactElement {
  const names = useNames(props.form.source === 'claim' ? kinds.claim : kinds.dataVolume, props.form.namespace);
  const options = [{ value: '', label: c.choose }, ...names.map((n) => ({ value: n.metadata.name, label: shown(n.metadata.name, 120) }))];
  return <Choice {...props} field="claim" options={options} />;
}

function DiskFields(props: Props): ReactElement {
  const sources: readonly DiskSource[] = ['containerDisk', 'url', 'claim', 'dataVolume'];
  return (
    <FormSection title={c.diskSection} titleElement="h2">
      <Choice {...props} field="source" options={sources.map((s) => ({ value: s, label: c.sources[s] }))} />
      {props.form.source === 'containerDisk' && <Text {...props} field="image" required />}
      {props.form.source === 'url' && (
        <>
          <Text {...props} field="url" required />
          <Text {...props} field="size" required />
          <ClassChoice {...props} />
        </>
      )}
      {(props.form.source === 'claim' || props.form.source === 'dataVolume') && <ClaimChoice {...props} />}
    </FormSection>
  );
}

export function FormFields(props: Props): ReactElement {
  const { form, faults, disabled, change, submit } = props;
  return (
    <PFForm onSubmit={(event) => {
      event.preventDefault();
      submit();
    }}>
      {/* Enter in a field submits only a form that has such a button. */}
      <button type="submit" hidden />
      <FormSection title={c.machineSection} titleElement="h2">
        <Text {...props} field="name" required />
        <Group field="namespace" faults={faults} required>
          <NamespaceChoice
            id={idOf('namespace')} all={false} value={form.namespace} invalid={faultsAt(faults, 'namespace').length > 0} onChange={(namespace) => {
              if (!disabled) change({ ...form, namespace });
            }}
          />
        </Group>
        <Checkbox id={idOf('start')} label={c.field('start')} isChecked={form.start} isDisabled={disabled} onChange={(_e, start) => {
          change({ ...form, start });
        }} />
      </FormSection>
      <DiskFields {...props} />
      <FormSection title={c.sizeSection} titleElement="h2">
        <SizeChoice {...props} />
        {form.instanceType === '' && (
          <>
            <Text {...props} field="cpus" required />
            <Text {...props} field="memory" required />
          </>
        )}
        <PreferenceChoice {...props} />
      </FormSection>
      <FormSection title={c.accessSection} titleElement="h2">
        <Area {...props} field="sshKeys" rows={2} extra={keysAreLost(form) ? c.keysLost : undefined} />
        <Area {...props} field="userData" rows={6} />
      </FormSection>
    </PFForm>
  );
}
