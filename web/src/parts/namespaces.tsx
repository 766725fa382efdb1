// The choice of a namespace: from a list if the user may see it, else by its name.
import { useState, type ReactElement } from 'react';
import { FormSelect, FormSelectOption, TextInput } from '@patternfly/react-core';
import { useList } from '../kube/lists';
import { kinds } from '../kube/paths';
import { shown } from '../text/shown';
import { t } from '../text/en';

interface Props {
  id: string;
  value: string;
  // Whether '' may be chosen, for all of them.
  all: boolean;
  invalid?: boolean;
  onChange: (namespace: string) => void;
}

export function NamespaceChoice({ id, value, all, invalid = false, onChange }: Props): ReactElement {
  const list = useList(kinds.namespace);
  const validated = invalid ? 'error' : 'default';
  if (list.failure && !list.complete) return <NamespaceName key={value} id={id} value={value} invalid={invalid} onChange={onChange} />;
  const names = [...list.byKey.values()].map((n) => n.metadata.name).sort();
  if (value !== '' && !names.includes(value)) names.unshift(value);
  return (
    <FormSelect id={id} value={value} aria-label={t.machines.namespace} validated={validated} onChange={(_e, v) => {
      onChange(v);
    }}>
      {(all || value === '') && <FormSelectOption value="" label={all ? t.machines.all : t.create.choose} />}
      {names.map((name) => <FormSelectOption key={name} value={name} label={shown(name, 63)} />)}
    </FormSelect>
  );
}

function NamespaceName({ id, value, invalid, onChange }: Omit<Props, 'all'>): ReactElement {
  const [text, setText] = useState(value);
  return (
    <TextInput
      id={id} value={text} aria-label={t.machines.namespace} validated={invalid ? 'error' : 'default'} placeholder={t.machines.namespace}
      onChange={(_e, v) => {
        setText(v);
      }}
      onBlur={() => {
        onChange(text.trim());
      }}
      onKeyDown={(e) => {
        if (e.key === 'Enter') onChange(text.trim());
      }}
    />
  );
}
