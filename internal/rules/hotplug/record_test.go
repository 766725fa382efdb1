package hotplug

import "testing"

func TestWhatIsWrittenOfARecord(t *testing.T) {
	for name, test := range map[string]struct {
		record Record
		want   string
	}{
		"nothing":                            {Record{}, ""},
		"a pod":                              {Record{Generation: 1, Pods: []AttachmentPod{held(1, "a")}}, `{"generation":1,"holders":[{"name":"hp-1","volumes":[{"name":"a","claim":"a"}]}]}`},
		"which names were used, and no pods": {Record{Generation: 3}, `{"generation":3}`},
		"pods of names that nobody counted":  {Record{Pods: []AttachmentPod{noted(held(2, "a=x"))}}, `{"holders":[{"name":"hp-2","uid":"u2","volumes":[{"name":"a","claim":"x"}]}]}`},
	} {
		if got := test.record.Text(); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

func TestWhichRecordsSayTheSame(t *testing.T) {
	one := Record{Generation: 2, Pods: []AttachmentPod{noted(held(1, "a")), held(2, "b")}}
	for name, test := range map[string]struct {
		other Record
		want  bool
	}{
		"itself":          {Record{Generation: 2, Pods: []AttachmentPod{noted(held(1, "a")), held(2, "b")}}, true},
		"a later one":     {Record{Generation: 3, Pods: one.Pods}, false},
		"a pod less":      {Record{Generation: 2, Pods: one.Pods[:1]}, false},
		"another order":   {Record{Generation: 2, Pods: []AttachmentPod{held(2, "b"), noted(held(1, "a"))}}, false},
		"a UID more":      {Record{Generation: 2, Pods: []AttachmentPod{noted(held(1, "a")), noted(held(2, "b"))}}, false},
		"another pod":     {Record{Generation: 2, Pods: []AttachmentPod{noted(held(1, "a")), held(3, "b")}}, false},
		"another volume":  {Record{Generation: 2, Pods: []AttachmentPod{noted(held(1, "a")), held(2, "c")}}, false},
		"another claim":   {Record{Generation: 2, Pods: []AttachmentPod{noted(held(1, "a")), held(2, "b=x")}}, false},
		"a volume beside": {Record{Generation: 2, Pods: []AttachmentPod{noted(held(1, "a")), held(2, "b", "c")}}, false},
	} {
		if sameRecord(one, test.other) != test.want || sameRecord(test.other, one) != test.want {
			t.Errorf("%s: says the same: %v, want %v", name, !test.want, test.want)
		}
	}
}

func TestTheNumberOfAName(t *testing.T) {
	for name, want := range map[string]int{"hp-7": 7, "hp-70": 70, "hp-": 0, "hp-x": 0, "hp": 0, "other-7": 0, "": 0} {
		if got := generation("hp", name); got != want {
			t.Errorf("%q has the number %d, want %d", name, got, want)
		}
	}
}
