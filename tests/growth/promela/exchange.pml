/* `keys` of ../exchange.star: N ranks in a ring exchange two handles with each neighbour through a store, twice, without a
 * barrier in between. Keys have no generation, so a rank may read the handle of the first round in the second, or delete
 * the one that was just set and let its owner's peer wait for ever.
 *
 * Edge e leads from rank e to rank e + 1, and has a key for each of its two ends. The value of a key is the round it was set
 * in, 0 if it is not set. That SPIN ends in an invalid end state is the hang; `stale` is that a handle of another round was read.
 */
byte key[N * 2];
bool stale;
byte fences;

inline fetches(k) { key[k] != 0; got = key[k]; stale = stale || got != it; key[k] = 0 }

proctype host(byte me) {
  byte it = 1, left = (me + N - 1) % N, got;
  do
  :: it <= K ->
     key[me * 2] = it;
     key[left * 2 + 1] = it;
     fetches(me * 2 + 1);
     fetches(left * 2);
     it++
  :: it > K -> break
  od;
  fences++;
  fences == N
}

init { atomic { byte j; do :: j < N -> run host(j); j++ :: j == N -> break od } }
