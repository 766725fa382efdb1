// Dark or light: as the system says, unless the user chose.
export type Theme = 'system' | 'light' | 'dark';

const place = 'drydock-theme';
const darkClass = 'pf-v6-theme-dark';

export function storedTheme(): Theme {
  const stored = localStorage.getItem(place);
  return stored === 'light' || stored === 'dark' ? stored : 'system';
}

function apply(theme: Theme, systemIsDark: boolean): void {
  const dark = theme === 'dark' || (theme === 'system' && systemIsDark);
  document.documentElement.classList.toggle(darkClass, dark);
}

const system = matchMedia('(prefers-color-scheme: dark)');

export function setTheme(theme: Theme): void {
  if (theme === 'system') localStorage.removeItem(place);
  else localStorage.setItem(place, theme);
  apply(theme, system.matches);
}

export function followTheme(): void {
  apply(storedTheme(), system.matches);
  system.addEventListener('change', () => {
    apply(storedTheme(), system.matches);
  });
}
