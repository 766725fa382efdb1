package logline

import (
	"encoding/json"
	"testing"
)

func TestAFormatIsTextOrJSON(t *testing.T) {
	var f Format
	if f.String() != "text" {
		t.Errorf("the zero value is %s", f.String())
	}
	if err := f.Set("json"); err != nil || f != JSON {
		t.Errorf("%s, %v", f, err)
	}
	if err := f.Set("xml"); err == nil || f != JSON {
		t.Errorf("xml is taken: %s, %v", f, err)
	}
}

func TestAnObjectIsReadAsItIsWritten(t *testing.T) {
	of := Object{Namespace: "default", Name: "my.vm-1", UID: "0f0c"}
	var read Object
	if err := read.Set(of.String()); err != nil || read != of {
		t.Errorf("%+v, %v", read, err)
	}
	for _, text := range []string{"", "a/b", "a/b/c/d"} {
		if err := read.Set(text); err == nil {
			t.Errorf("%q is read as %+v", text, read)
		}
	}
	if !of.Complete() || (Object{Namespace: "a", Name: "b"}).Complete() {
		t.Error("an object is complete if it has all three")
	}
}

func TestAnObjectIsAnObjectInJSON(t *testing.T) {
	got, err := json.Marshal(Object{Namespace: "a", Name: "b", UID: "c"})
	if want := `{"namespace":"a","name":"b","uid":"c"}`; err != nil || string(got) != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
}
