// SPDX-License-Identifier: MIT
// Search in index.js, which is loaded when it is first needed. ?q=WORDS in the address searches too.
'use strict';
const input = document.querySelector('input[type=search]');
const found = document.getElementById('found');

// How well a part fits: 0 if it lacks a word.
function score([, title, id, heading, text], words) {
  let sum = 0;
  for (const word of words) {
    const head = heading.toLowerCase(), bare = head.replace(/^-+/, '').split(/[ ,=]/)[0];
    const value = (bare === word.replace(/^-+/, '') ? 30 : 0) + (head.includes(word) ? 10 : 0) +
      (title.toLowerCase().includes(word) ? 3 : 0) + (text.toLowerCase().includes(word) ? (id === 'NAME' ? 5 : 1) : 0);
    if (value === 0)
      return 0;
    sum += value;
  }
  return sum;
}

function line([file, title, id, heading, text], words) {
  const link = document.createElement('a'), more = document.createElement('small');
  const at = Math.max(0, text.toLowerCase().indexOf(words[0]) - 60);
  link.href = file + (id ? '#' + id : '');
  link.textContent = heading === title ? title : heading + ' - ' + title;
  more.textContent = (at > 0 ? '... ' : '') + text.slice(at, at + 180);
  link.append(more);
  return link;
}

function search() {
  const words = input.value.toLowerCase().split(/\s+/).filter(word => word);
  found.hidden = words.length === 0;
  if (found.hidden)
    return;
  const hits = index.map(part => [score(part, words), part]).filter(hit => hit[0] > 0);
  hits.sort((a, b) => b[0] - a[0]);
  found.replaceChildren(...hits.slice(0, 30).map(hit => line(hit[1], words)));
  if (hits.length === 0)
    found.textContent = 'Nothing has all these words.';
}

let loading;
function load() {
  if (!loading) {
    loading = document.createElement('script');
    loading.src = 'index.js';
    loading.onload = search;
    document.head.append(loading);
  } else if (typeof index !== 'undefined') {
    search();
  }
}

input.addEventListener('input', load);
input.form.addEventListener('submit', event => event.preventDefault());
found.addEventListener('click', () => { found.hidden = true; });
input.value = new URLSearchParams(location.search).get('q') || '';
if (input.value)
  load();
