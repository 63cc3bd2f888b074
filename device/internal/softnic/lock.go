package softnic

import "sync"

type lock struct{ sync.Mutex }
