// A field of a form, with the faults that the server found in it, or else a hint.
import type { ReactElement, ReactNode } from 'react';
import { FormGroup, FormHelperText, HelperText, HelperTextItem } from '@patternfly/react-core';
import { Foreign } from './basics';

interface Props {
  id: string;
  label: string;
  faults: readonly string[];
  help?: string;
  required?: boolean;
  children: ReactNode;
}

export function Field({ id, label, faults, help = '', required = false, children }: Props): ReactElement {
  return (
    <FormGroup label={label} fieldId={id} isRequired={required}>
      {children}
      {(faults.length > 0 || help !== '') && (
        <FormHelperText>
          <HelperText id={`${id}-help`}>
            {faults.map((fault) => <HelperTextItem key={fault} variant="error"><Foreign text={fault} most={1000} /></HelperTextItem>)}
            {faults.length === 0 && <HelperTextItem>{help}</HelperTextItem>}
          </HelperText>
        </FormHelperText>
      )}
    </FormGroup>
  );
}

// The attributes by which an input of the field is marked and described.
export function fieldProps(id: string, bad: boolean): { id: string; validated: 'error' | 'default'; 'aria-describedby': string; 'aria-invalid': boolean } {
  return { id, validated: bad ? 'error' : 'default', 'aria-describedby': `${id}-help`, 'aria-invalid': bad };
}
