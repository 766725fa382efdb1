package registration

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

const (
	newer = "v2.machines.example.com"
	older = "v1.machines.example.com"
)

var versions = []schema.GroupVersion{{Group: "machines.example.com", Version: "v2"}, {Group: "machines.example.com", Version: "v1"}}

// model leads to virt-api.
func model() *apiregistrationv1.APIService {
	service := apiService("v1.subresources.kubevirt.io", "virt-api", "new")
	service.UID = "u-model"
	return &service
}

func apiService(name, service, bundle string) apiregistrationv1.APIService {
	s := apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s.Spec.CABundle = []byte(bundle)
	if service != "" {
		s.Spec.Service = &apiregistrationv1.ServiceReference{Namespace: "kubevirt", Name: service}
	}
	return s
}

func owned(s apiregistrationv1.APIService) apiregistrationv1.APIService {
	s.OwnerReferences = []metav1.OwnerReference{{Name: model().Name, UID: model().UID}, {UID: "another"}}
	return s
}

func going(s apiregistrationv1.APIService) apiregistrationv1.APIService {
	s.DeletionTimestamp = new(metav1.Now())
	return s
}

func TestAnAPIServiceIsOnlyTouchedWhereItIsOurs(t *testing.T) {
	ours := func(name string) apiregistrationv1.APIService { return owned(apiService(name, "virt-api", "new")) }
	for name, c := range map[string]struct {
		services    []apiregistrationv1.APIService
		definitions []string
		// yields and keeps are the results with and without Yield.
		yields, keeps map[string]verb
	}{
		"there is none": {
			yields: map[string]verb{newer: create, older: create}, keeps: map[string]verb{newer: create, older: create},
		},
		"there are ours":        {services: []apiregistrationv1.APIService{ours(newer), ours(older)}},
		"one of ours is going":  {services: []apiregistrationv1.APIService{ours(newer), going(ours(older))}},
		"the authority changed": {services: []apiregistrationv1.APIService{ours(newer), owned(apiService(older, "virt-api", "old"))}, yields: map[string]verb{older: update}, keeps: map[string]verb{older: update}},
		"others are elsewhere": {
			services:    []apiregistrationv1.APIService{ours(newer), ours(older), apiService("v3.example.com", "", "")},
			definitions: []string{"machines.example.com", "subresources.machines.other.com"},
		},
		"a definition came": {
			services:    []apiregistrationv1.APIService{ours(newer), ours(older)},
			definitions: []string{"crates.machines.example.com"},
			yields:      map[string]verb{newer: remove, older: remove},
		},
		"a definition is there, and serves one version": {
			services:    []apiregistrationv1.APIService{apiService(older, "", "")},
			definitions: []string{"crates.machines.example.com"},
			keeps:       map[string]verb{newer: create},
		},
		"somebody serves another version": {
			services: []apiregistrationv1.APIService{ours(newer), apiService("v3.machines.example.com", "theirs", "")},
			yields:   map[string]verb{newer: remove}, keeps: map[string]verb{older: create},
		},
		"somebody took one over": {
			services: []apiregistrationv1.APIService{ours(newer), owned(apiService(older, "theirs", "new"))},
			yields:   map[string]verb{newer: remove, older: update}, keeps: map[string]verb{older: update},
		},
	} {
		var definitions []metav1.PartialObjectMetadata
		for _, d := range c.definitions {
			definitions = append(definitions, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: d}})
		}
		for yield, want := range map[bool]map[string]verb{true: c.yields, false: c.keeps} {
			got := Groups{Versions: versions, Yield: yield}.steps(c.services, definitions, model())
			if len(got) != len(want) {
				t.Errorf("%s (Yield %v): %d steps, want %v", name, yield, len(got), want)
			}
			for _, s := range got {
				if want[s.service.Name] != s.do {
					t.Errorf("%s (Yield %v): %s %s; want %v", name, yield, s.do, s.service.Name, want)
				}
			}
		}
	}
}

func TestARegistrationGoesWithTheInstallation(t *testing.T) {
	made := registration(versions[0], model())
	if made.Name != newer || string(made.Spec.CABundle) != "new" || made.Spec.Service.Name != "virt-api" || made.Spec.Group != versions[0].Group {
		t.Errorf("made: %+v", made)
	}
	if owner := made.OwnerReferences[0]; owner.Name != model().Name || owner.UID != model().UID {
		t.Errorf("it outlives the installation: owner is %+v", owner)
	}
}

// An APIService that somebody took over must stay when Drydock goes, without our CA.
func TestWhatSomebodyTookOverIsReleased(t *testing.T) {
	for bundle, want := range map[string]string{"new": "", "theirs": "theirs"} {
		taken := owned(apiService(older, "theirs", bundle))
		released := release(&taken, model())
		if released == nil || len(released.OwnerReferences) != 1 || released.OwnerReferences[0].UID != "another" || string(released.Spec.CABundle) != want {
			t.Errorf("released: %+v", released)
		}
	}
	never := apiService(older, "theirs", "new")
	if released := release(&never, model()); released != nil {
		t.Errorf("it never was ours: %+v", released)
	}
}
