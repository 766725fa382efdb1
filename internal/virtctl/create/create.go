// Package create is virtctl create: it writes manifests, so that users can read, keep and change them first. It
// must send nothing to a cluster.
package create

import (
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype"

	"drydock.dev/drydock/internal/virtctl/env"
)

// NewCommand returns create with its subcommands.
func NewCommand(e *env.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Write the manifest of a virtual machine, a clone, an instance type or a preference",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newVM(e), newClone(e), newInstancetype(e), newPreference(e))
	return cmd
}

func newVM(e *env.Env) *cobra.Command {
	o := options{
		instancetype: choice{flag: "instancetype", kinds: []string{instancetype.SingularResourceName, instancetype.ClusterSingularResourceName}},
		preference:   choice{flag: "preference", kinds: []string{instancetype.SingularPreferenceResourceName, instancetype.ClusterSingularPreferenceResourceName}},
	}
	cmd := &cobra.Command{
		Use:   "vm",
		Short: "Write the manifest of a VirtualMachine to standard output",
		Example: e.Example("# Create a machine from a container disk and start it:",
			"create vm --name=vm-cirros --volume-containerdisk=src:quay.io/kubevirt/cirros-container-disk-demo:latest | kubectl create -f -",
			"# With a user and an SSH key, from a claim:",
			"create vm --name=db --memory=4Gi --volume-pvc=src:db-disk --user=admin --ssh-key=\"$(cat ~/.ssh/id_ed25519.pub)\"",
			"# Of a size and for a system that the cluster knows:",
			"create vm --name=app --instancetype=u1.medium --preference=fedora --volume-import=type:ds,src:images/fedora",
			"# With a disk of its own that is filled from an image:",
			"create vm --name=web --volume-import=type:http,size:10Gi,url:https://cloud.debian.org/images/cloud/bookworm/latest/debian-12-generic-amd64.qcow2"),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.readFlags(cmd); err != nil {
				return err
			}
			o.namespace = *e.Flags.Namespace
			return run(e, &o)
		},
	}
	o.addFlags(cmd)
	o.addGuestFlags(cmd)
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
	flags.StringArrayVar(&o.imports, importFlag, nil, "disk that is made with the machine: type:blank|ds|http|pvc|registry|snapshot[,size:SIZE][,url:URL][,src:[NAMESPACE/]NAME][,name:NAME][,bootorder:N]; may be repeated")
	flags.StringVarP(&o.output, "output", "o", "yaml", "json or yaml")
	o.instancetype.addFlags(flags)
	o.preference.addFlags(flags)
	for _, group := range [][]string{
		{"memory", "instancetype", "infer-instancetype", "infer-instancetype-from"},
		{"cpus", "instancetype", "infer-instancetype", "infer-instancetype-from"},
		{"preference", "infer-preference", "infer-preference-from"},
	} {
		cmd.MarkFlagsMutuallyExclusive(group...)
	}
	for alias, kind := range aliases {
		flags.StringArray(alias, nil, "the older form of --"+importFlag+"=type:"+kind)
		flags.Lookup(alias).Hidden = true
	}
}

func (o *options) addGuestFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&o.sysprep, sysprepFlag, "", "answer files for Windows' setup: src:NAME[,type:configmap|secret]")
	flags.StringArrayVar(&o.credentials, credentialFlag, nil, "Secret whose keys or passwords the guest gets: src:SECRET[,type:ssh|password][,method:ga|nocloud|configdrive][,user:USER]; may be repeated")
	flags.StringVar(&o.cloudInit.source, "cloud-init", noCloud, "data source of cloud-init: nocloud, configdrive or none")
	flags.StringVar(&o.cloudInit.userData, "cloud-init-user-data", "", "user data for cloud-init, in base64")
	flags.StringVar(&o.cloudInit.networkData, "cloud-init-network-data", "", "network data for cloud-init, in base64")
	flags.StringVar(&o.cloudInit.user, "user", "", "user that cloud-init sets up")
	flags.StringVar(&o.cloudInit.passwordFile, "password-file", "", "file with the user's password")
	flags.StringArrayVar(&o.cloudInit.sshKeys, "ssh-key", nil, "public key that may log in as the user; may be repeated")
	flags.BoolVar(&o.cloudInit.agentKeys, "ga-manage-ssh", false, "have cloud-init let the guest's agent manage SSH keys, which SELinux denies it by default")
}

// aliases are flags of older KubeVirt releases, with the type of --volume-import that replaces them.
var aliases = map[string]string{"volume-blank": "blank", "volume-clone-pvc": "pvc", "volume-datasource": "ds"}

// The aliases precede --volume-import, which determines the boot order.
func (o *options) readFlags(cmd *cobra.Command) error {
	flags := cmd.Flags()
	o.memoryGiven, o.cpusGiven = flags.Changed("memory"), flags.Changed("cpus")
	for _, r := range []*choice{&o.instancetype, &o.preference} {
		r.asked = r.from != "" || r.infer && flags.Changed(r.inferFlag())
	}
	o.cloudInit.sourceGiven, o.cloudInit.agentGiven = flags.Changed("cloud-init"), flags.Changed("ga-manage-ssh")
	var older []string
	for _, alias := range slices.Sorted(maps.Keys(aliases)) {
		values, err := flags.GetStringArray(alias)
		if err != nil {
			return fmt.Errorf("reading --%s: %w", alias, err)
		}
		for _, text := range values {
			older = append(older, "type:"+aliases[alias]+","+text)
		}
	}
	o.imports = append(older, o.imports...)
	return nil
}

func run(e *env.Env, o *options) error {
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

// printManifest prints an object as a manifest, without its status and without the defaults that tidy removes.
func printManifest(e *env.Env, format string, object any, tidy func(manifest map[string]any)) error {
	manifest, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return fmt.Errorf("writing the manifest: %w", err)
	}
	delete(manifest, "status")
	tidy(manifest)
	return env.Print(e.Out, format, manifest)
}
