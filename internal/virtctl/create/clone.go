package create

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
	clonev1 "kubevirt.io/api/clone/v1beta1"

	"drydock.dev/drydock/internal/virtctl/env"
)

type cloneOptions struct {
	name, namespace        string
	sourceName, sourceType string
	targetName, targetType string
	macAddresses           []string
	volumeNames            string
	output                 string
	spec                   clonev1.VirtualMachineCloneSpec
	serial                 string
}

type reference struct{ group, kind string }

var (
	vmReference       = reference{"kubevirt.io", "VirtualMachine"}
	snapshotReference = reference{"snapshot.kubevirt.io", "VirtualMachineSnapshot"}
	// sourceTypes and targetTypes are in lower case; users may use any case.
	targetTypes = map[string]reference{"vm": vmReference, "virtualmachine": vmReference}
	sourceTypes = map[string]reference{
		"vm": vmReference, "virtualmachine": vmReference,
		"snapshot": snapshotReference, "vmsnapshot": snapshotReference, "virtualmachinesnapshot": snapshotReference,
	}
)

func newClone(e *env.Env) *cobra.Command {
	var o cloneOptions
	cmd := &cobra.Command{
		Use:   "clone",
		Short: "Write the manifest of a VirtualMachineClone to standard output",
		Example: e.Example("# Make another machine of one:",
			"create clone --source-name=vm-cirros --target-name=vm-copy | kubectl create -f -",
			"# Of a snapshot, with an address of its own and without some labels:",
			"create clone --source-type=snapshot --source-name=golden --new-mac-address=default:02:00:00:aa:bb:cc --label-filter='*' --label-filter='!team/*'"),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.namespace = *e.Flags.Namespace
			if cmd.Flags().Changed("new-smbios-serial") {
				o.spec.NewSMBiosSerial = &o.serial
			}
			if err := env.CheckFormat(o.output); err != nil {
				return err
			}
			clone, err := o.clone()
			if err != nil {
				return err
			}
			return printManifest(e, o.output, clone, func(manifest map[string]any) {
				if template, ok := manifest["spec"].(map[string]any)["template"].(map[string]any); ok && len(template) == 0 {
					delete(manifest["spec"].(map[string]any), "template")
				}
			})
		},
	}
	o.addFlags(cmd)
	return cmd
}

func (o *cloneOptions) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&o.name, "name", "", "name of the clone; a random one if not set")
	flags.StringVar(&o.sourceName, "source-name", "", "name of what is cloned")
	flags.StringVar(&o.sourceType, "source-type", "vm", "vm or snapshot")
	flags.StringVar(&o.targetName, "target-name", "", "name of the machine to make; one is generated if not set")
	flags.StringVar(&o.targetType, "target-type", "vm", "vm")
	flags.StringSliceVar(&o.spec.LabelFilters, "label-filter", nil, "labels to copy, all if not set: a key, a beginning and *, or ! and one of them for what is not to be copied; may be repeated")
	flags.StringSliceVar(&o.spec.AnnotationFilters, "annotation-filter", nil, "annotations to copy, likewise; may be repeated")
	flags.StringSliceVar(&o.spec.Template.LabelFilters, "template-label-filter", nil, "labels of the template to copy, likewise; may be repeated")
	flags.StringSliceVar(&o.spec.Template.AnnotationFilters, "template-annotation-filter", nil, "annotations of the template to copy, likewise; may be repeated")
	flags.StringSliceVar(&o.macAddresses, "new-mac-address", nil, "MAC address of an interface: INTERFACE:ADDRESS; others get new ones; may be repeated")
	flags.StringVar(&o.serial, "new-smbios-serial", "", "serial number of the machine")
	flags.StringArrayVar(&o.spec.Patches, "patch", nil, "JSON patch of the machine, one operation; may be repeated")
	flags.StringVar(&o.volumeNames, "volume-name-policy", "", "names of the claims: RandomizeNames or PrefixTargetName")
	flags.StringVarP(&o.output, "output", "o", "yaml", "json or yaml")
}

// clone builds the object. Without the target's name it has no target, and the cluster chooses one.
func (o cloneOptions) clone() (*clonev1.VirtualMachineClone, error) {
	if o.sourceName == "" {
		return nil, fmt.Errorf("--source-name: say what to clone")
	}
	source, err := refer("source-type", o.sourceType, o.sourceName, sourceTypes)
	if err != nil {
		return nil, err
	}
	target, err := refer("target-type", o.targetType, o.targetName, targetTypes)
	if err != nil {
		return nil, err
	}
	if problems := validation.IsDNS1123Label(o.targetName); o.targetName != "" && len(problems) > 0 {
		return nil, fmt.Errorf("--target-name: %q is no name for a machine: %s", o.targetName, problems[0])
	}
	name := o.name
	if name == "" {
		name = "clone-" + rand.String(5)
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return nil, fmt.Errorf("--name: %q is no name for a clone: %s", name, problems[0])
	}
	spec := o.spec
	spec.Source = source
	if o.targetName != "" {
		spec.Target = target
	}
	if spec.NewMacAddresses, err = macAddresses(o.macAddresses); err != nil {
		return nil, err
	}
	switch policy := clonev1.VolumeNamePolicy(o.volumeNames); policy {
	case "":
	case clonev1.VolumeNamePolicyRandomizeNames, clonev1.VolumeNamePolicyPrefixTargetName:
		spec.VolumeNamePolicy = &policy
	default:
		return nil, fmt.Errorf("--volume-name-policy must be RandomizeNames or PrefixTargetName, not %q", o.volumeNames)
	}
	return &clonev1.VirtualMachineClone{
		TypeMeta:   metav1.TypeMeta{APIVersion: clonev1.SchemeGroupVersion.String(), Kind: "VirtualMachineClone"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: o.namespace},
		Spec:       spec,
	}, nil
}

func refer(flag, kind, name string, types map[string]reference) (*corev1.TypedLocalObjectReference, error) {
	to, ok := types[strings.ToLower(kind)]
	if !ok {
		return nil, fmt.Errorf("--%s must be one of %s, not %q", flag, strings.Join(slices.Sorted(maps.Keys(types)), ", "), kind)
	}
	return &corev1.TypedLocalObjectReference{APIGroup: &to.group, Kind: to.kind, Name: name}, nil
}

// An interface's name has no colon, so the first one separates.
func macAddresses(flags []string) (map[string]string, error) {
	if len(flags) == 0 {
		return nil, nil
	}
	out := map[string]string{}
	for _, text := range flags {
		nic, address, _ := strings.Cut(text, ":")
		hardware, err := net.ParseMAC(address)
		switch {
		case nic == "" || err != nil || len(hardware) != 6:
			return nil, fmt.Errorf("--new-mac-address: %q is not of the form INTERFACE:ADDRESS, such as default:02:00:00:aa:bb:cc", text)
		case out[nic] != "":
			return nil, fmt.Errorf("--new-mac-address: interface %q is given twice", nic)
		}
		out[nic] = address
	}
	return out, nil
}
