// What was typed is kept in the tab, so that it outlives a reload.
import { emptyForm, type Form } from './form';

const place = 'drydock-new-machine';

// Only known fields of the right type are taken.
export function parseDraft(text: string | null, empty: Form): Form {
  if (text === null) return empty;
  let stored: unknown;
  try {
    stored = JSON.parse(text);
  } catch {
    return empty;
  }
  if (typeof stored !== 'object' || stored === null) return empty;
  const values = Object.entries(stored).filter(([key, value]) => {
    const known = (empty as unknown as Record<string, unknown>)[key];
    return known !== undefined && typeof known === typeof value;
  });
  const form: Form = { ...empty, ...Object.fromEntries(values) };
  return ['containerDisk', 'url', 'claim', 'dataVolume'].includes(form.source) ? form : { ...form, source: empty.source };
}

export function readDraft(namespace: string): Form {
  return parseDraft(sessionStorage.getItem(place), emptyForm(namespace));
}

export function writeDraft(form: Form): void {
  try {
    sessionStorage.setItem(place, JSON.stringify(form));
  } catch {
    // The storage is full; the form itself still has the values.
  }
}

export function clearDraft(): void {
  sessionStorage.removeItem(place);
}
