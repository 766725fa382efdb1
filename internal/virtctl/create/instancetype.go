package create

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
	v1 "kubevirt.io/api/core/v1"
	instancetypev1 "kubevirt.io/api/instancetype/v1beta1"

	"drydock.dev/drydock/internal/virtctl/env"
)

type placement struct {
	name, namespace string
	namespaced      bool
	output          string
}

func (p *placement) addFlags(flags *pflag.FlagSet, what string) {
	flags.StringVar(&p.name, "name", "", "name of the "+what+"; a random one if not set")
	flags.BoolVar(&p.namespaced, "namespaced", false, "make one of a namespace and not of the cluster; -n does so, too")
	flags.StringVarP(&p.output, "output", "o", "yaml", "json or yaml")
}

// word is the kind in lower case, for a random name.
func (p *placement) metadata(word string) (metav1.ObjectMeta, error) {
	name := p.name
	switch {
	case name != "":
	case p.namespaced:
		name = word + "-" + rand.String(5)
	default:
		name = "cluster" + word + "-" + rand.String(5)
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return metav1.ObjectMeta{}, fmt.Errorf("--name: %q is no name for an object of the cluster: %s", name, problems[0])
	}
	return metav1.ObjectMeta{Name: name, Namespace: p.namespace}, nil
}

func (p *placement) place(e *env.Env) {
	p.namespace = *e.Flags.Namespace
	p.namespaced = p.namespaced || p.namespace != ""
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: instancetypev1.SchemeGroupVersion.String(), Kind: kind}
}

type instancetypeOptions struct {
	placement
	cpus              uint32
	memory            string
	gpus, hostDevices []string
	ioThreads         string
}

func newInstancetype(e *env.Env) *cobra.Command {
	var o instancetypeOptions
	cmd := &cobra.Command{
		Use:   "instancetype",
		Short: "Write the manifest of a VirtualMachineClusterInstancetype or VirtualMachineInstancetype",
		Example: e.Example("# A size for all namespaces:", "create instancetype --name=tiny --cpu=1 --memory=256Mi | kubectl create -f -",
			"# One of the namespace 'lab':", "create instancetype --name=tiny --cpu=1 --memory=256Mi -n lab | kubectl create -f -"),
		Args: cobra.NoArgs,
		RunE: func(_ *cobra.Command, _ []string) error {
			o.place(e)
			return o.run(e)
		},
	}
	flags := cmd.Flags()
	o.addFlags(flags, "instance type")
	flags.Uint32Var(&o.cpus, "cpu", 0, "CPUs of the guest")
	flags.StringVar(&o.memory, "memory", "", "memory of the guest")
	flags.StringArrayVar(&o.gpus, "gpu", nil, "GPU that the guest gets: name:NAME,devicename:RESOURCE; may be repeated")
	flags.StringArrayVar(&o.hostDevices, "hostdevice", nil, "device of the node that the guest gets: name:NAME,devicename:RESOURCE; may be repeated")
	flags.StringVar(&o.ioThreads, "iothreadspolicy", "", "threads for the disks: auto or shared")
	for _, flag := range []string{"cpu", "memory"} {
		// The error is only for an undefined flag.
		_ = cmd.MarkFlagRequired(flag)
	}
	return cmd
}

func (o *instancetypeOptions) run(e *env.Env) error {
	if err := env.CheckFormat(o.output); err != nil {
		return err
	}
	meta, err := o.metadata("instancetype")
	if err != nil {
		return err
	}
	spec, err := o.spec()
	if err != nil {
		return err
	}
	var object any = &instancetypev1.VirtualMachineClusterInstancetype{
		TypeMeta: typeMeta("VirtualMachineClusterInstancetype"), ObjectMeta: meta, Spec: spec,
	}
	if o.namespaced {
		object = &instancetypev1.VirtualMachineInstancetype{TypeMeta: typeMeta("VirtualMachineInstancetype"), ObjectMeta: meta, Spec: spec}
	}
	return printManifest(e, o.output, object, func(map[string]any) {})
}

func (o *instancetypeOptions) spec() (instancetypev1.VirtualMachineInstancetypeSpec, error) {
	spec := instancetypev1.VirtualMachineInstancetypeSpec{}
	memory, err := resource.ParseQuantity(o.memory)
	if err != nil || memory.Sign() <= 0 {
		return spec, fmt.Errorf("--memory must be a quantity greater than zero, such as 512Mi or 4Gi, not %q", o.memory)
	}
	if o.cpus == 0 {
		return spec, fmt.Errorf("--cpu must be at least 1")
	}
	spec.CPU.Guest, spec.Memory.Guest = o.cpus, memory
	for _, text := range o.gpus {
		name, device, err := parseDevice("gpu", text)
		if err != nil {
			return spec, err
		}
		spec.GPUs = append(spec.GPUs, v1.GPU{Name: name, DeviceName: device})
	}
	for _, text := range o.hostDevices {
		name, device, err := parseDevice("hostdevice", text)
		if err != nil {
			return spec, err
		}
		spec.HostDevices = append(spec.HostDevices, v1.HostDevice{Name: name, DeviceName: device})
	}
	switch policy := v1.IOThreadsPolicy(o.ioThreads); policy {
	case "":
	case v1.IOThreadsPolicyAuto, v1.IOThreadsPolicyShared:
		spec.IOThreadsPolicy = &policy
	default:
		return spec, fmt.Errorf("--iothreadspolicy must be auto or shared, not %q", o.ioThreads)
	}
	return spec, nil
}

func parseDevice(flag, text string) (name, device string, err error) {
	values, err := pairs(flag, text)
	if err != nil {
		return "", "", err
	}
	keys := []string{"name", "devicename"}
	return values["name"], values["devicename"], checkKeys(flag, values, keys, keys)
}

type preferenceOptions struct {
	placement
	class, machine, topology string
}

// topologies are the values of --cpu-topology; the older ones that begin with 'prefer' mean the same.
var topologies = []instancetypev1.PreferredCPUTopology{
	instancetypev1.Cores, instancetypev1.Sockets, instancetypev1.Threads, instancetypev1.Spread, instancetypev1.Any,
	instancetypev1.DeprecatedPreferCores, instancetypev1.DeprecatedPreferSockets, instancetypev1.DeprecatedPreferThreads,
	instancetypev1.DeprecatedPreferSpread, instancetypev1.DeprecatedPreferAny,
}

func newPreference(e *env.Env) *cobra.Command {
	var o preferenceOptions
	cmd := &cobra.Command{
		Use:   "preference",
		Short: "Write the manifest of a VirtualMachineClusterPreference or VirtualMachinePreference",
		Example: e.Example("# A preference for all namespaces:", "create preference --name=wide --cpu-topology=sockets | kubectl create -f -",
			"# One of the namespace 'lab':", "create preference --name=wide --volume-storage-class=fast -n lab | kubectl create -f -"),
		Args: cobra.NoArgs,
		RunE: func(_ *cobra.Command, _ []string) error {
			o.place(e)
			return o.run(e)
		},
	}
	flags := cmd.Flags()
	o.addFlags(flags, "preference")
	flags.StringVar(&o.class, "volume-storage-class", "", "storage class of disks that are made with the machine")
	flags.StringVar(&o.machine, "machine-type", "", "machine type")
	flags.StringVar(&o.topology, "cpu-topology", "", "how the guest sees its CPUs: sockets, cores, threads, spread or any")
	return cmd
}

func (o *preferenceOptions) run(e *env.Env) error {
	if err := env.CheckFormat(o.output); err != nil {
		return err
	}
	meta, err := o.metadata("preference")
	if err != nil {
		return err
	}
	spec := instancetypev1.VirtualMachinePreferenceSpec{}
	if o.class != "" {
		spec.Volumes = &instancetypev1.VolumePreferences{PreferredStorageClassName: o.class}
	}
	if o.machine != "" {
		spec.Machine = &instancetypev1.MachinePreferences{PreferredMachineType: o.machine}
	}
	if o.topology != "" {
		topology := instancetypev1.PreferredCPUTopology(o.topology)
		if !slices.Contains(topologies, topology) {
			return fmt.Errorf("--cpu-topology must be sockets, cores, threads, spread or any, not %q", o.topology)
		}
		spec.CPU = &instancetypev1.CPUPreferences{PreferredCPUTopology: &topology}
	}
	var object any = &instancetypev1.VirtualMachineClusterPreference{
		TypeMeta: typeMeta("VirtualMachineClusterPreference"), ObjectMeta: meta, Spec: spec,
	}
	if o.namespaced {
		object = &instancetypev1.VirtualMachinePreference{TypeMeta: typeMeta("VirtualMachinePreference"), ObjectMeta: meta, Spec: spec}
	}
	return printManifest(e, o.output, object, func(manifest map[string]any) {
		unstructured.RemoveNestedField(manifest, "metadata", "creationTimestamp")
	})
}
