package cloneright

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/storage/datavolume"
)

// writer is the user who wrote a source into a VM's dataVolumeTemplates. It omits the authenticator's extra fields, which
// may be secret.
type writer struct {
	Username string   `json:"username"`
	UID      string   `json:"uid,omitempty"`
	Groups   []string `json:"groups,omitempty"`
}

// writers are by the source in another namespace, as datavolume.AllowedSource returns it.
type writers map[string]writer

// mostGroups bounds a writer's groups, in bytes. A user with more may lack a right because of that.
const mostGroups = 8 << 10

// NoteWriters annotates a VM with the users by whose rights its DataVolumes are cloned, and drops a note that a user wrote.
// user wrote the templates with the indices fresh. old is nil on creation.
func NoteWriters(vm, old *v1.VirtualMachine, namespace string, fresh []int, user authenticationv1.UserInfo) error {
	noted := writers{}
	if old != nil {
		noted = writersOf(old)
	}
	for _, i := range fresh {
		if source := sourceOf(&vm.Spec.DataVolumeTemplates[i], namespace); source != "" {
			noted[source] = writer{Username: user.Username, UID: user.UID, Groups: fit(user.Groups)}
		}
	}
	used := map[string]bool{}
	for i := range vm.Spec.DataVolumeTemplates {
		used[sourceOf(&vm.Spec.DataVolumeTemplates[i], namespace)] = true
	}
	maps.DeleteFunc(noted, func(source string, _ writer) bool { return !used[source] })
	if len(noted) == 0 {
		delete(vm.Annotations, layout.AnnCloneWriters)
		return nil
	}
	text, err := json.Marshal(noted)
	if err != nil {
		return fmt.Errorf("noting who wrote the sources of VirtualMachine %s: %w", vm.Name, err)
	}
	metav1.SetMetaDataAnnotation(&vm.ObjectMeta, layout.AnnCloneWriters, string(text))
	return nil
}

// Writer returns the noted writer of the source of a VM's DataVolume, and whether there is one.
func Writer(vm *v1.VirtualMachine, dv *cdiv1.DataVolume) (authenticationv1.UserInfo, bool) {
	w, noted := writersOf(vm)[datavolume.AllowedSource(dv)]
	return authenticationv1.UserInfo{Username: w.Username, UID: w.UID, Groups: w.Groups}, noted
}

// HasSource reports whether a template has the DataVolume's source.
func HasSource(vm *v1.VirtualMachine, dv *cdiv1.DataVolume) bool {
	return slices.ContainsFunc(vm.Spec.DataVolumeTemplates, func(template v1.DataVolumeTemplateSpec) bool {
		return sourceOf(&template, dv.Namespace) == datavolume.AllowedSource(dv)
	})
}

// sourceOf returns a template's source in another namespace, "" for none.
func sourceOf(template *v1.DataVolumeTemplateSpec, namespace string) string {
	return datavolume.AllowedSource(&cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}, Spec: template.Spec})
}

// An unreadable note counts as none, since only virt-api writes it.
func writersOf(vm *v1.VirtualMachine) writers {
	noted := writers{}
	if text := vm.Annotations[layout.AnnCloneWriters]; text != "" && json.Unmarshal([]byte(text), &noted) != nil {
		return writers{}
	}
	return noted
}

func fit(groups []string) []string {
	length := 0
	for i, group := range groups {
		if length += len(group); length > mostGroups {
			return groups[:i]
		}
	}
	return groups
}
