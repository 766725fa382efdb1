// xterm writes style elements, which a Content-Security-Policy without inline styles ignores. The same rules work as
// constructed style sheets, so xterm gets a document that makes those.

// An empty style element would be reported as refused, so it is another element that holds the sheet.
function styleElement(page: Document, create: (name: string) => HTMLElement): HTMLElement {
  const element = create('span');
  element.hidden = true;
  const sheet = new CSSStyleSheet();
  page.adoptedStyleSheets = [...page.adoptedStyleSheets, sheet];
  Object.defineProperty(element, 'textContent', {
    get: () => '',
    set: (text: string) => {
      sheet.replaceSync(text);
    },
  });
  const remove = (): void => {
    page.adoptedStyleSheets = page.adoptedStyleSheets.filter((s) => s !== sheet);
    Element.prototype.remove.call(element);
  };
  Object.defineProperty(element, 'remove', { value: remove });
  return element;
}

// The attribute is refused, the property is not.
function withStyle<T extends HTMLElement>(element: T): T {
  const set = (name: string, value: string): void => {
    if (name === 'style') element.style.cssText = value;
    else Element.prototype.setAttribute.call(element, name, value);
  };
  Object.defineProperty(element, 'setAttribute', { value: set });
  return element;
}

const html = 'http://www.w3.org/1999/xhtml';

function creator(page: Document): (name: string) => HTMLElement {
  const create = (name: string): HTMLElement => page.createElementNS(html, name);
  return (name) => (name === 'style' ? styleElement(page, create) : withStyle(create(name)));
}

export function documentFor(page: Document): Document {
  const createElement = creator(page);
  return new Proxy(page, {
    get: (target, key) => {
      if (key === 'createElement') return createElement;
      const value: unknown = Reflect.get(target, key, target);
      return typeof value === 'function' ? (value.bind(target) as unknown) : value;
    },
  });
}

// While xterm opens, a part of it uses the page's own document.
export function whileOpening(page: Document, open: () => void): void {
  Object.defineProperty(page, 'createElement', { value: creator(page), configurable: true });
  try {
    open();
  } finally {
    Reflect.deleteProperty(page, 'createElement');
  }
}
