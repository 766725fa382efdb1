// Package credentials is virtctl credentials: the SSH keys and passwords that a machine's guest gets from
// Secrets. It changes those Secrets, and a VM's spec.template.spec.accessCredentials to add a Secret. It must
// not print a password, and does not know how guests apply the Secrets.
package credentials

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/virtctl/client"
	"drydock.dev/drydock/internal/virtctl/env"
)

type options struct {
	machine, user, secret  string
	force                  bool
	file, value            string
	create, update         bool
	password, passwordFile string
}

// NewCommand returns the command.
func NewCommand(e *env.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "credentials",
		Short: "Change the SSH keys and passwords of a virtual machine's users",
		Long: "Change the SSH keys and passwords of a virtual machine's users.\n" +
			"They are in Secrets that the machine's accessCredentials name, and the guest's agent sets them.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newAdd(e), newRemove(e), newPassword(e))
	return cmd
}

func newAdd(e *env.Env) *cobra.Command {
	var o options
	cmd := newVerb(e, &o, "add-ssh-key", "Add an SSH key of a user", addKeys)
	cmd.Long = "Add an SSH key of a user, to the Secret of his keys. If the machine has none, one is made, which it gets when it starts next."
	cmd.Example = e.Example("# Add a key; the guest gets it while it runs:", "credentials add-ssh-key --user=fedora --file=id_ed25519.pub vm-fedora",
		"# In a Secret that other machines may have, too:", "credentials add-ssh-key --user=fedora --file=id_ed25519.pub --force vm-fedora",
		"# In a Secret of its own, with the next start of a machine that runs:",
		"credentials add-ssh-key --user=fedora --file=id_ed25519.pub --create-secret --force vm-fedora")
	o.addKeyFlags(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&o.create, "create-secret", false, "make a Secret for the key, of the name --secret if that is given, and add it to the machine; --force if the machine runs, which gets it with its next start")
	flags.BoolVar(&o.update, "update-secret", false, "add the key to a Secret that the machine has, and make none")
	cmd.MarkFlagsMutuallyExclusive("create-secret", "update-secret")
	return cmd
}

func newRemove(e *env.Env) *cobra.Command {
	var o options
	cmd := newVerb(e, &o, "remove-ssh-key", "Remove an SSH key of a user", removeKeys)
	cmd.Long = "Remove an SSH key of a user, from all the Secrets of his keys or from one."
	cmd.Example = e.Example("# Remove a key; the guest follows while it runs:", "credentials remove-ssh-key --user=fedora --file=id_ed25519.pub vm-fedora",
		"# From a Secret that other machines may have, too:", "credentials remove-ssh-key --user=fedora --file=id_ed25519.pub --force vm-fedora")
	o.addKeyFlags(cmd)
	return cmd
}

func newPassword(e *env.Env) *cobra.Command {
	var o options
	cmd := newVerb(e, &o, "set-password", "Set a user's password", setPassword)
	cmd.Long = "Set a user's password, in the Secret of the machine's passwords. Who sees this computer's processes sees --password."
	cmd.Example = e.Example("# From a file, or - for standard input:", "credentials set-password --user=fedora --password-file=password.txt vm-fedora",
		"# In a Secret that other machines may have, too:", "credentials set-password --user=fedora --password-file=password.txt --force vm-fedora")
	flags := cmd.Flags()
	flags.StringVarP(&o.password, "password", "p", "", "the password")
	flags.StringVar(&o.passwordFile, "password-file", "", "file with the password; - is standard input")
	cmd.MarkFlagsMutuallyExclusive("password", "password-file")
	return cmd
}

func newVerb(e *env.Env, o *options, name, short string, run func(context.Context, *env.Env, *options) error) *cobra.Command {
	cmd := &cobra.Command{
		Use: name + " VM", Short: short, Args: env.ExactArgs("VM"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.machine = args[0]
			if o.user == "" {
				return errors.New("--user is missing: it names the guest's user")
			}
			return run(cmd.Context(), e, o)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&o.user, "user", "u", "", "name of the guest's user")
	flags.StringVar(&o.secret, "secret", "", "name of the Secret, if the machine has several")
	flags.BoolVar(&o.force, "force", false, "change a Secret also if it is not the machine's own, so that others may have it, too")
	return cmd
}

func (o *options) addKeyFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVarP(&o.file, "file", "f", "", "file with the SSH public key; - is standard input")
	flags.StringVar(&o.value, "value", "", "the SSH public key")
	cmd.MarkFlagsMutuallyExclusive("file", "value")
}

// maxFile is the limit of a Secret's size.
const maxFile = 1 << 20

func read(e *env.Env, flag, path string) (string, error) {
	from := e.In
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return "", fmt.Errorf("reading --%s: %w", flag, err)
		}
		defer func() { _ = file.Close() }()
		from = file
	}
	text, err := io.ReadAll(io.LimitReader(from, maxFile+1))
	if err != nil {
		return "", fmt.Errorf("reading --%s: %w", flag, err)
	}
	if len(text) > maxFile {
		return "", fmt.Errorf("reading --%s: it is larger than %d bytes", flag, maxFile)
	}
	return string(text), nil
}

func (o *options) keys(e *env.Env) ([]string, error) {
	switch {
	case o.value != "":
		return parseKeys("value", o.value)
	case o.file != "":
		text, err := read(e, "file", o.file)
		if err != nil {
			return nil, err
		}
		return parseKeys("file", text)
	}
	return nil, errors.New("say which SSH public key: with --file, or with --value")
}

type machine struct {
	c     *client.Client
	vm    *v1.VirtualMachine
	force bool
}

func look(ctx context.Context, e *env.Env, o *options) (*machine, error) {
	c, namespace, err := e.Connect()
	if err != nil {
		return nil, err
	}
	vm, err := readVM(ctx, c, namespace, o.machine)
	return &machine{c: c, vm: vm, force: o.force}, err
}

func readVM(ctx context.Context, c *client.Client, namespace, name string) (*v1.VirtualMachine, error) {
	vm, err := c.VM(ctx, namespace, name)
	if err == nil && vm.Spec.Template == nil {
		err = errors.New("it has no template")
	}
	if err != nil {
		return nil, fmt.Errorf("reading VM %s: %w", name, err)
	}
	return vm, nil
}

func keySecrets(vm *v1.VirtualMachine, user string) []string {
	var names []string
	for _, c := range vm.Spec.Template.Spec.AccessCredentials {
		if c.SSHPublicKey == nil || c.SSHPublicKey.PropagationMethod.QemuGuestAgent == nil {
			continue
		}
		if slices.Contains(c.SSHPublicKey.PropagationMethod.QemuGuestAgent.Users, user) {
			names = addName(names, c.SSHPublicKey.Source.Secret)
		}
	}
	return names
}

func passwordSecrets(vm *v1.VirtualMachine) []string {
	var names []string
	for _, c := range vm.Spec.Template.Spec.AccessCredentials {
		if c.UserPassword != nil && c.UserPassword.PropagationMethod.QemuGuestAgent != nil {
			names = addName(names, c.UserPassword.Source.Secret)
		}
	}
	return names
}

func addName(names []string, source *v1.AccessCredentialSecretSource) []string {
	if source == nil || source.SecretName == "" || slices.Contains(names, source.SecretName) {
		return names
	}
	return append(names, source.SecretName)
}

// what describes the Secrets' content.
func choose(names []string, wanted, what string) (string, error) {
	switch {
	case wanted != "" && !slices.Contains(names, wanted):
		return "", fmt.Errorf("the Secret %s is none of its Secrets with %s (%s)", wanted, what, orNone(names))
	case wanted != "":
		return wanted, nil
	case len(names) == 0:
		return "", fmt.Errorf("its accessCredentials name no Secret with %s, which the guest's agent sets", what)
	case len(names) > 1:
		return "", fmt.Errorf("it has several Secrets with %s (%s): choose one with --secret", what, strings.Join(names, ", "))
	}
	return names[0], nil
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "it has none"
	}
	return strings.Join(names, ", ")
}
