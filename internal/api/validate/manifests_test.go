package validate

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	v1 "kubevirt.io/api/core/v1"
	migrationsv1alpha1 "kubevirt.io/api/migrations/v1alpha1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/yaml"

	"drydock.dev/drydock/internal/api/admission"
	"drydock.dev/drydock/internal/api/defaults"
	"drydock.dev/drydock/internal/rules/clusterconfig"
)

// foreignManifests is where manifests that others wrote lie, if at all: they are not part of the repository.
const foreignManifests = "../../../../shared/manifests"

// manifestsAccepted is how many of those are accepted whole.
const manifestsAccepted = 31

// Each file is judged as admission judges it, without a cluster: what a kubectl that checks fields would say, the
// defaults, and the rules. -v prints why the others are refused.
func TestManifestsThatOthersWrote(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(foreignManifests, "*.yaml"))
	if err != nil || len(paths) == 0 {
		t.Skip("there are no manifests of others")
	}
	accepted := 0
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		refusals := judgeFile(t, text)
		if len(refusals) == 0 {
			accepted++
			continue
		}
		t.Logf("%s\n\t%s", filepath.Base(path), strings.Join(refusals, "\n\t"))
	}
	t.Logf("%d of %d are accepted whole", accepted, len(paths))
	if accepted < manifestsAccepted {
		t.Errorf("%d of %d manifests are accepted, want at least %d", accepted, len(paths), manifestsAccepted)
	}
}

// judgeFile gives what is refused of a file of several manifests.
func judgeFile(t *testing.T, text []byte) []string {
	var refusals []string
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return refusals
		}
		if err != nil {
			t.Fatal(err)
		}
		refusals = append(refusals, judgeForeign(document)...)
	}
}

// judgeForeign judges one manifest; those of kinds that are not Drydock's are not refused.
func judgeForeign(document []byte) []string {
	var meta struct{ APIVersion, Kind string }
	if err := yaml.Unmarshal(document, &meta); err != nil {
		return []string{err.Error()}
	}
	settings := clusterconfig.FromKubeVirt(nil)
	settings.HostDisk = true
	var errs field.ErrorList
	var err error
	switch meta.APIVersion + " " + meta.Kind {
	case "kubevirt.io/v1 VirtualMachine":
		vm := &v1.VirtualMachine{}
		if err = yaml.UnmarshalStrict(document, vm); err == nil {
			defaults.VM(vm, nil, settings)
			errs = VM(vm, nil, settings)
		}
	case "kubevirt.io/v1 VirtualMachineInstance":
		vmi := &v1.VirtualMachineInstance{}
		if err = yaml.UnmarshalStrict(document, vmi); err == nil {
			defaults.VMI(vmi, settings)
			errs = VMI(vmi, false, settings)
		}
	case "kubevirt.io/v1 VirtualMachineInstanceReplicaSet":
		rs := &v1.VirtualMachineInstanceReplicaSet{}
		if err = yaml.UnmarshalStrict(document, rs); err == nil {
			errs = ReplicaSet(rs, nil, settings)
		}
	case "kubevirt.io/v1 VirtualMachineInstanceMigration":
		vmim := &v1.VirtualMachineInstanceMigration{}
		if err = yaml.UnmarshalStrict(document, vmim); err == nil {
			errs = Migration(vmim, false, nil, nil)
		}
	case "migrations.kubevirt.io/v1alpha1 MigrationPolicy":
		policy := &migrationsv1alpha1.MigrationPolicy{}
		if err = yaml.UnmarshalStrict(document, policy); err == nil {
			errs = MigrationPolicy(policy, nil)
		}
	case "cdi.kubevirt.io/v1beta1 DataVolume":
		dv := &cdiv1.DataVolume{}
		if err = yaml.UnmarshalStrict(document, dv); err == nil {
			defaults.DataVolume(dv, nil, true)
			errs = DataVolume(dv, nil)
		}
	case "kubevirt.io/v1 KubeVirt":
		kv := &v1.KubeVirt{}
		if err = yaml.UnmarshalStrict(document, kv); err == nil {
			errs = KubeVirt(kv, nil)
		}
	default:
		if strings.Contains(meta.APIVersion, "kubevirt.io/") {
			return []string{fmt.Sprintf("%s %s is not served", meta.APIVersion, meta.Kind)}
		}
	}
	if err != nil {
		return []string{meta.Kind + ": " + err.Error()}
	}
	var refusals []string
	for _, e := range errs {
		refusals = append(refusals, meta.Kind+" "+e.Field+": "+admission.Sentence(e))
	}
	return refusals
}
