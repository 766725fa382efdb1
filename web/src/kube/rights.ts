// What a user may do in a namespace, by the rules that the API server lists for the user.

export interface Rule {
  verbs?: string[];
  apiGroups?: string[];
  resources?: string[];
  resourceNames?: string[];
}

export interface Wish {
  verb: string;
  group: string;
  // with its subresource: virtualmachines/start
  resource: string;
  name?: string;
}

function lists(values: string[] | undefined, value: string): boolean {
  return values?.some((v) => v === '*' || v === value) ?? false;
}

function listsResource(values: string[] | undefined, resource: string): boolean {
  const sub = resource.indexOf('/');
  return lists(values, resource) || (sub >= 0 && (values?.includes(`*${resource.slice(sub)}`) ?? false));
}

function grants(rule: Rule, wish: Wish): boolean {
  const names = rule.resourceNames ?? [];
  return (
    lists(rule.verbs, wish.verb) &&
    lists(rule.apiGroups, wish.group) &&
    listsResource(rule.resources, wish.resource) &&
    (names.length === 0 || (wish.name !== undefined && names.includes(wish.name)))
  );
}

export function allows(rules: readonly Rule[], wish: Wish): boolean {
  return rules.some((rule) => grants(rule, wish));
}

// The text of a wish, for the reason at a button.
export function wishText(wish: Wish): string {
  return `${wish.verb} ${wish.resource}${wish.group === '' ? '' : `.${wish.group}`}`;
}
