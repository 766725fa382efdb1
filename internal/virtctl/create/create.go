// Package create is virtctl create: it writes manifests and sends nothing to a
// cluster, so that what is made can be read, kept and changed first.
package create

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/virtctl/env"
)

// NewCommand makes the command and those below it.
func NewCommand(e *env.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Write the manifest of a virtual machine or of a clone",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newVM(e), newClone(e))
	return cmd
}

func newVM(e *env.Env) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "vm",
		Short: "Write the manifest of a VirtualMachine to standard output",
		Example: e.Example("# Create a machine from a container disk and start it:",
			"create vm --name=vm-cirros --volume-containerdisk=src:quay.io/kubevirt/cirros-container-disk-demo:latest | kubectl create -f -",
			"# With a user and an SSH key, from a claim:",
			"create vm --name=db --memory=4Gi --volume-pvc=src:db-disk --user=admin --ssh-key=\"$(cat ~/.ssh/id_ed25519.pub)\"",
			"# With a disk of its own that is filled from an image:",
			"create vm --name=web --volume-import=type:http,size:10Gi,url:https://cloud.debian.org/images/cloud/bookworm/latest/debian-12-generic-amd64.qcow2"),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := refuse(cmd); err != nil {
				return err
			}
			o.namespace = *e.Flags.Namespace
			return run(e, o)
		},
	}
	o.addFlags(cmd)
	addRefused(cmd)
	return cmd
}

func (o *options) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&o.name, "name", "", "name of the machine; a random one if not set")
	flags.StringVar(&o.runStrategy, "run-strategy", string(v1.RunStrategyAlways), "Always, RerunOnFailure, Once, Manual or Halted")
	flags.StringVar(&o.memory, "memory", "512Mi", "memory of the guest")
	flags.Uint32Var(&o.cpus, "cpus", 1, "CPUs of the guest, one socket each")
	flags.Int64Var(&o.gracePeriod, "termination-grace-period", 180, "seconds that the guest is given to shut down")
	flags.StringArrayVar(&o.containerDisks, "volume-containerdisk", nil, "disk from a container image: src:IMAGE[,name:NAME][,bootorder:N]; may be repeated")
	flags.StringArrayVar(&o.claims, "volume-pvc", nil, "disk from a PersistentVolumeClaim: src:CLAIM[,name:NAME][,bootorder:N]; may be repeated")
	flags.StringArrayVar(&o.imports, importFlag, nil, "disk that is made with the machine: type:blank|http|pvc|registry|snapshot[,size:SIZE][,url:URL][,src:[NAMESPACE/]NAME][,name:NAME][,bootorder:N]; may be repeated")
	flags.StringVar(&o.cloudInit.source, "cloud-init", noCloud, "data source of cloud-init: nocloud, configdrive or none")
	flags.StringVar(&o.cloudInit.userData, "cloud-init-user-data", "", "user data for cloud-init, in base64")
	flags.StringVar(&o.cloudInit.networkData, "cloud-init-network-data", "", "network data for cloud-init, in base64")
	flags.StringVar(&o.cloudInit.user, "user", "", "user that cloud-init sets up")
	flags.StringVar(&o.cloudInit.passwordFile, "password-file", "", "file with the user's password")
	flags.StringArrayVar(&o.cloudInit.sshKeys, "ssh-key", nil, "public key that may log in as the user; may be repeated")
	flags.StringVarP(&o.output, "output", "o", "yaml", "json or yaml")
}

// refused are flags of KubeVirt's create vm for what Drydock does not
// implement. They exist to say so, rather than to be unknown.
var refused = []struct {
	name     string
	isSwitch bool
}{
	{name: "instancetype"}, {name: "preference"},
	{name: "infer-instancetype", isSwitch: true}, {name: "infer-preference", isSwitch: true},
	{name: "volume-blank"}, {name: "volume-clone-pvc"}, {name: "volume-datasource"},
	{name: "volume-sysprep"}, {name: "access-cred"}, {name: "ga-manage-ssh", isSwitch: true},
}

func addRefused(cmd *cobra.Command) {
	for _, r := range refused {
		if r.isSwitch {
			cmd.Flags().Bool(r.name, false, "not supported by Drydock")
		} else {
			cmd.Flags().StringArray(r.name, nil, "not supported by Drydock")
		}
		cmd.Flags().Lookup(r.name).Hidden = true
	}
}

func refuse(cmd *cobra.Command) error {
	for _, r := range refused {
		if cmd.Flags().Changed(r.name) {
			return fmt.Errorf("--%s: not supported by Drydock", r.name)
		}
	}
	return nil
}

func run(e *env.Env, o options) error {
	if err := env.CheckFormat(o.output); err != nil {
		return err
	}
	vm, err := o.machine()
	if err != nil {
		return err
	}
	return printManifest(e, o.output, vm, func(manifest map[string]any) {
		unstructured.RemoveNestedField(manifest, "spec", "template", "metadata")
		unstructured.RemoveNestedField(manifest, "spec", "template", "spec", "domain", "resources")
	})
}

// printManifest prints an object as a manifest: what is wanted, not what is, and nothing about what is left to the
// defaults, which tidy removes.
func printManifest(e *env.Env, format string, object any, tidy func(manifest map[string]any)) error {
	manifest, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return fmt.Errorf("writing the manifest: %w", err)
	}
	delete(manifest, "status")
	tidy(manifest)
	return env.Print(e.Out, format, manifest)
}
