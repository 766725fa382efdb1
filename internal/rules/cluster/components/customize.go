package components

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/logline"
)

// Limits of customizeComponents. A patch is applied at each change of a workload.
const (
	MaxPatches   = 64
	MaxPatchSize = 16 << 10
)

var kinds = map[string]string{API: "Deployment", Controller: "Deployment", Handler: "DaemonSet"}

// settable are the flags that customizeComponents.flags may set. The others determine the component's identity,
// addresses and programs, and belong to the manifests (decision 592).
var settable = map[string][]string{
	API:        {logline.Flag},
	Controller: {"import-allowed-networks", "import-denied-networks", logline.Flag, "max-attachment-pods", "pprof-addr"},
	Handler:    {logline.Flag, "pprof-addr"},
}

// Ineffective returns why a patch can't have an effect, "" if it may: it is not for Drydock's objects, or it would
// remove the manifests' fields or expand beyond its own size.
func Ineffective(p *v1.CustomizeComponentsPatch) string {
	if kind, known := kinds[p.ResourceName]; !known || !strings.EqualFold(p.ResourceType, kind) {
		return "it is for none of the deployments virt-api and virt-controller and the daemon set virt-handler"
	}
	if p.Type != v1.JSONPatchType || len(p.Patch) > MaxPatchSize {
		return ""
	}
	operations, err := jsonpatch.DecodePatch([]byte(p.Patch))
	if err != nil {
		return "" // CheckPatch reports this.
	}
	for i, o := range operations {
		if !slices.Contains([]string{"add", "replace", "test"}, o.Kind()) {
			return fmt.Sprintf("operation %d is %q; add, replace and test are supported", i+1, o.Kind())
		}
	}
	return ""
}

// Flags returns each component's flags.
func Flags(f *v1.Flags) map[string]map[string]string {
	if f == nil {
		return nil
	}
	return map[string]map[string]string{API: f.API, Controller: f.Controller, Handler: f.Handler}
}

// Settable reports whether a flag of a component can be set.
func Settable(component, flag string) bool { return slices.Contains(settable[component], flag) }

// CheckPatch validates a patch by itself.
func CheckPatch(p *v1.CustomizeComponentsPatch) error {
	if len(p.Patch) > MaxPatchSize {
		return fmt.Errorf("must not be longer than %d bytes", MaxPatchSize)
	}
	switch p.Type {
	case v1.JSONPatchType:
		if _, err := jsonpatch.DecodePatch([]byte(p.Patch)); err != nil {
			return fmt.Errorf("must be a list of operations of a JSON patch: %w", err)
		}
	case v1.MergePatchType, v1.StrategicMergePatchType:
		var fields map[string]any
		if err := json.Unmarshal([]byte(p.Patch), &fields); err != nil {
			return fmt.Errorf("must be a JSON object: %w", err)
		}
	}
	return nil
}

// customize applies patches in their order, then flags. It skips ineffective patches, about which admission warns.
func customize(w workload, c *v1.CustomizeComponents) error {
	args := slices.Clone(argsOf(w.template))
	for i := range c.Patches {
		p := &c.Patches[i]
		if i >= MaxPatches || p.ResourceName != w.name || Ineffective(p) != "" {
			continue
		}
		if err := patch(w.object, p); err != nil {
			return fmt.Errorf("spec.customizeComponents.patches[%d]: %w", i, err)
		}
	}
	if w.replicas != nil && *w.replicas != nil && **w.replicas < 1 {
		return fmt.Errorf("spec.customizeComponents.patches: at least one pod must be left: nobody would follow this object any more")
	}
	if !slices.Equal(args, argsOf(w.template)) {
		return fmt.Errorf("spec.customizeComponents.patches: arguments are set by customizeComponents.flags")
	}
	return setFlags(w, Flags(c.Flags)[w.name])
}

// patch changes an object. A misspelled field in the patch is an error.
func patch(object runtime.Object, p *v1.CustomizeComponentsPatch) error {
	if err := CheckPatch(p); err != nil {
		return err
	}
	before, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("encoding the workload: %w", err)
	}
	var after []byte
	switch p.Type {
	case v1.JSONPatchType:
		var list jsonpatch.Patch
		if list, err = jsonpatch.DecodePatch([]byte(p.Patch)); err == nil {
			after, err = list.Apply(before)
		}
	case v1.MergePatchType:
		after, err = jsonpatch.MergePatch(before, []byte(p.Patch))
	case v1.StrategicMergePatchType:
		after, err = strategicpatch.StrategicMergePatch(before, []byte(p.Patch), object)
	default:
		err = fmt.Errorf("the type %q is none of json, merge and strategic", p.Type)
	}
	if err != nil {
		return err
	}
	switch o := object.(type) {
	case *appsv1.Deployment:
		*o = appsv1.Deployment{}
	case *appsv1.DaemonSet:
		*o = appsv1.DaemonSet{}
	}
	decoder := json.NewDecoder(bytes.NewReader(after))
	decoder.DisallowUnknownFields()
	return decoder.Decode(object)
}

func argsOf(template *corev1.PodTemplateSpec) []string {
	var all []string
	for _, containers := range [][]corev1.Container{template.Spec.InitContainers, template.Spec.Containers} {
		for i := range containers {
			if len(containers[i].Args) > 0 {
				all = append(append(all, containers[i].Name), containers[i].Args...)
			}
		}
	}
	return all
}

// setFlags replaces flags of the component's own container, and the format of logs in all. It skips unsettable ones,
// about which admission warns.
func setFlags(w workload, flags map[string]string) error {
	if value, set := flags[logline.Flag]; set {
		if err := new(logline.Format).Set(value); err != nil {
			return fmt.Errorf("spec.customizeComponents.flags: %w", err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		if !Settable(w.name, name) {
			continue
		}
		for _, containers := range [][]corev1.Container{w.template.Spec.InitContainers, w.template.Spec.Containers} {
			for i := range containers {
				if c := &containers[i]; c.Name == w.name || name == logline.Flag {
					setFlag(c, "--"+name+"=", flags[name])
				}
			}
		}
	}
	return nil
}

func setFlag(c *corev1.Container, flag, value string) {
	others := slices.DeleteFunc(slices.Clone(c.Args), func(arg string) bool { return strings.HasPrefix(arg, flag) })
	c.Args = append(others, flag+value)
}
