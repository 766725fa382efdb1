import tseslint from 'typescript-eslint';
import hooks from 'eslint-plugin-react-hooks';
import a11y from 'eslint-plugin-jsx-a11y';

export default tseslint.config(
  { ignores: ['node_modules/', 'dist/'] },
  ...tseslint.configs.strictTypeChecked,
  ...tseslint.configs.stylisticTypeChecked,
  hooks.configs.flat['recommended-latest'],
  a11y.flatConfigs.strict,
  {
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    linterOptions: { reportUnusedDisableDirectives: 'error' },
    rules: {
      // Go's figure of 15, with room for ?. and ??, which are counted here.
      complexity: ['error', 24],
      'max-params': ['error', 6],
      'max-lines': ['error', 600],
      'max-lines-per-function': ['error', { max: 80, skipBlankLines: true, skipComments: true }],
      '@typescript-eslint/explicit-module-boundary-types': 'error',
      '@typescript-eslint/no-unused-vars': ['error', { varsIgnorePattern: '^_', argsIgnorePattern: '^_' }],
      // HTML from the cluster must never be parsed as such.
      'no-restricted-syntax': [
        'error',
        { selector: 'JSXAttribute[name.name="dangerouslySetInnerHTML"]', message: 'Text from the cluster is text.' },
        { selector: 'MemberExpression[property.name=/^(innerHTML|outerHTML|insertAdjacentHTML)$/]', message: 'Text from the cluster is text.' },
      ],
    },
  },
  { files: ['test/**'], rules: { '@typescript-eslint/no-floating-promises': 'off' } },
  { files: ['**/*.js'], ...tseslint.configs.disableTypeChecked },
);
